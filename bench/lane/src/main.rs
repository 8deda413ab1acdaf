//! Measures programs with deadlines under a load, rung by rung, and prints tables in Markdown.
//!
//! Usage: `evermap-lane-bench [OPTIONS] [SECTION ...]`; without sections, all of them run.

use std::process::ExitCode;

use common::options::{self, Options};
use common::{Outcome, guard};
use evermap_lane_bench::sections::{self, SECTIONS};
use evermap_lane_bench::{bench, child};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["child", "guard"] => guard::watch(std::io::stdin().lock()),
        ["child", "serve"] => evermap_lane::bench::serve().map_err(Into::into),
        ["child", "play", policy, play] => child::play(policy, play),
        ["child", "watch", request] => child::watch(request),
        // The measured library is linked into this program.
        ["--version"] => {
            println!("evermap-lane {}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
        _ => drive(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("evermap-lane-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn drive() -> Outcome {
    let choices = sections::choices();
    match Options::read(&choices)? {
        Some(options) => bench::start(options)?.run(&SECTIONS),
        None => {
            println!("{}", options::help(&choices));
            Ok(())
        }
    }
}
