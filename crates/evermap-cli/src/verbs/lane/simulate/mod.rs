//! `evermap lane simulate`: predicts the effect of a core, a tier and non-blocking I/O.

mod fit;
mod inputs;
mod profile;
mod reproduce;
mod run;
mod sweep;

use clap::Subcommand;

use crate::failure::Failure;

/// Simulate a program with deadlines on devices that need not be present
///
/// A profile describes the program and the machine; each parameter has a value and a source. Two
/// profiles are built in: `bahn2019`, fitted to a published study, and `measured`. The same profile
/// and seed give the same output on every machine.
#[derive(Debug, clap::Args)]
pub struct Simulate {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Fit(fit::Fit),
    Profile(profile::Profile),
    Reproduce(reproduce::Reproduce),
    Run(run::Run),
    Sweep(sweep::Sweep),
}

impl Simulate {
    pub fn run(&self) -> Result<(), Failure> {
        match &self.what {
            What::Fit(fit) => fit.run(),
            What::Profile(profile) => profile.run(),
            What::Reproduce(reproduce) => reproduce.run(),
            What::Run(run) => run.run(),
            What::Sweep(sweep) => sweep.run(),
        }
    }
}
