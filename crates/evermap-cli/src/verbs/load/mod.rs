//! `evermap load`: loads data files into memory.

mod patterns;
mod probe;
mod report;
mod run;

use clap::Subcommand;

use crate::failure::Failure;

/// Load data files into memory quickly
#[derive(Debug, clap::Args)]
pub struct Load {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Probe(probe::Probe),
    Run(run::Run),
}

impl Load {
    pub fn run(&self) -> Result<(), Failure> {
        match &self.what {
            What::Probe(probe) => probe.run(),
            What::Run(run) => run.run(),
        }
    }
}
