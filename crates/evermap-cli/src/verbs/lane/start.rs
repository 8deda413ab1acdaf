//! `evermap lane start`.

use crate::failure::Failure;

/// For the lane itself
#[derive(Debug, clap::Args)]
pub struct Start {}

impl Start {
    pub fn run(&self) -> Result<(), Failure> {
        Err(Failure::Usage("not there yet".into()))
    }
}
