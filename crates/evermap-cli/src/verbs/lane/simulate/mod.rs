//! `evermap lane simulate`: what a core, a tier and I/O without blocking would bring.

mod fit;
mod given;
mod profile;
mod reproduce;
mod run;
mod sweep;

use clap::Subcommand;

use crate::failure::Failure;

/// Simulate a program with deadlines on devices that need not be there
///
/// A profile says what the program and the machine are: each parameter has a value and where it comes from. Two come with the
/// command: `bahn2019`, fitted to a published study, and `measured`. The same profile and the same seed give the same bytes, on any machine.
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
