//! Measures ways to load files, Evermap's and others, and prints tables in Markdown.
//!
//! Usage: `evermap-load-bench [OPTIONS] [SECTION ...]`; without sections, all of them run.

use std::process::ExitCode;

use common::options::{self, Options};
use common::{Outcome, guard};
use evermap_load_bench::sections::{self, SECTIONS};
use evermap_load_bench::{bench, child};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["child", "guard"] => guard::watch(std::io::stdin().lock()),
        ["child", "load", ..] => child::load(&words[2..]),
        // The measured library is linked into this program.
        ["--version"] => {
            println!("evermap-load {}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
        ["child", "rate", file] => child::rate::print(file.as_ref()),
        _ => drive(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("evermap-load-bench: {error}");
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
