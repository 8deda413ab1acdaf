//! `workload NAME VARIANT STEP [OPTIONS]`: does one step of a workload, and prints figures.
//!
//! One program for all of them: a guest is bound to an application by the hash of its module, and
//! so one module finds in its heaps what an earlier step put there, and a host compiles it once.

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
