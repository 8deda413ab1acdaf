//! `generate [SET ...] [OPTIONS]`: makes the data sets for the workloads, and prints their sizes.

use std::io::stdout;
use std::process::ExitCode;

use workloads::error::Outcome;
use workloads::generate::options::{HELP, Options, SETS};
use workloads::report::Report;

fn main() -> ExitCode {
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("generate: {error}");
            ExitCode::FAILURE
        }
    }
}

fn work() -> Outcome<()> {
    let Some(options) = Options::read()? else {
        println!("generate [SET ...] [OPTIONS]\n\nSets: {}\n\n{HELP}", SETS.join(", "));
        return Ok(());
    };
    workloads::generate::run(&options, &mut |set| Report::new(format!("generate.{set}"), stdout()))
}
