//! Measures transfers beside other programs, and prints tables in Markdown.
//!
//! `evermap-transfer-bench [OPTIONS] [SECTION ...]`; without sections, all of them.

use std::process::ExitCode;

use common::{Outcome, guard, quiet};
use evermap_transfer_bench::bench::Bench;
use evermap_transfer_bench::options::{self, Options};
use evermap_transfer_bench::sections::SECTIONS;

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
    let names = SECTIONS.map(|(name, _)| name);
    let Some(options) = Options::read(&names)? else {
        println!("{}", options::help(&names));
        return Ok(());
    };
    let mut bench = Bench::new(options)?;
    for (name, report) in SECTIONS {
        if bench.options.wants(name) {
            quiet::wait();
            println!("\n## {name}\n");
            report(&mut bench)?;
        }
    }
    bench.finish()
}
