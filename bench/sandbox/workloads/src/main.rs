//! `workload NAME VARIANT STEP [OPTIONS]`: runs one step of a workload, and prints figures.
//!
//! One program has all workloads: a guest is bound to an application by the hash of its module, so
//! a single module finds the heaps of earlier steps, and a host compiles it once.

use std::io::stdout;
use std::process::ExitCode;

use workloads::error::Outcome;
use workloads::options::{HELP, Options};
use workloads::report::Report;

fn main() -> ExitCode {
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("workload: {error}");
            ExitCode::FAILURE
        }
    }
}

fn work() -> Outcome<()> {
    let Some(options) = Options::read()? else {
        println!("workload NAME VARIANT STEP [OPTIONS]\n\nNames: {}\n\n{HELP}", workloads::names());
        return Ok(());
    };
    let prefix = format!("{}.{}.{}", options.workload, options.variant, options.step);
    workloads::run(&options, &mut Report::new(prefix, stdout()))
}
