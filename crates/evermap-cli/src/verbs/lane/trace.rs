//! `evermap lane trace`.

use crate::failure::Failure;

/// Record, read and summarise what a program reads and writes
#[derive(Debug, clap::Args)]
pub struct Trace {}

impl Trace {
    pub fn run(&self) -> Result<(), Failure> {
        Err(Failure::Usage("not there yet".into()))
    }
}
