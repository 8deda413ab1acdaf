//! `evermap lane simulate`.

use crate::failure::Failure;

/// Simulate a program with deadlines on devices that need not be there
#[derive(Debug, clap::Args)]
pub struct Simulate {}

impl Simulate {
    pub fn run(&self) -> Result<(), Failure> {
        Err(Failure::Usage("not there yet".into()))
    }
}
