//! `evermap load`: data files that are ready when the program is.

mod patterns;
mod probe;
mod run;
mod told;

use clap::Subcommand;

use crate::failure::Failure;

/// Have data files ready in memory
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
