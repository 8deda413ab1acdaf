//! `evermap lane run`.

use crate::failure::Failure;

/// Run a program in a lane
#[derive(Debug, clap::Args)]
pub struct Run {}

impl Run {
    pub fn run(&self) -> Result<(), Failure> {
        Err(Failure::Usage("not there yet".into()))
    }
}
