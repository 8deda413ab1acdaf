//! `evermap sandbox`: programs that are kept from what they have no business with.

mod exec;

use crate::failure::Failure;

use exec::Exec;

/// Run programs that are kept from what they have no business with
#[derive(Debug, clap::Args)]
pub struct Sandbox {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Exec(Exec),
}

impl Sandbox {
    pub fn run(&self) -> Result<(), Failure> {
        match &self.verb {
            Verb::Exec(exec) => exec.run(),
        }
    }
}
