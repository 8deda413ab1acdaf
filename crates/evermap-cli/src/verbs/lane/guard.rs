//! `evermap lane guard`.

use crate::failure::Failure;

/// For the lane itself
#[derive(Debug, clap::Args)]
pub struct Guard {}

impl Guard {
    pub fn run(&self) -> Result<(), Failure> {
        Err(Failure::Usage("not there yet".into()))
    }
}
