//! Measures transfers by Evermap and by other programs, and prints tables in Markdown.
//!
//! Usage: `evermap-transfer-bench [OPTIONS] [SECTION ...]`; without sections, all of them run.

use std::process::ExitCode;

use common::options::{self, Options};
use common::{Outcome, guard};
use evermap_transfer_bench::bench;
use evermap_transfer_bench::sections::{self, SECTIONS};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments[..] {
        ["child", "guard"] => guard::watch(std::io::stdin().lock()),
        _ => drive(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("evermap-transfer-bench: {error}");
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
