//! `evermap lane check`.

use crate::failure::Failure;

/// Tell what a lane could have on this machine, and what is missing for the rest
#[derive(Debug, clap::Args)]
pub struct Check {}

impl Check {
    pub fn run(&self) -> Result<(), Failure> {
        Err(Failure::Usage("not there yet".into()))
    }
}
