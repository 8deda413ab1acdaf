//! `evermap lane bench`.

use crate::failure::Failure;

/// Measure what each part of a lane brings on this machine
#[derive(Debug, clap::Args)]
pub struct Bench {}

impl Bench {
    pub fn run(&self) -> Result<(), Failure> {
        Err(Failure::Usage("not there yet".into()))
    }
}
