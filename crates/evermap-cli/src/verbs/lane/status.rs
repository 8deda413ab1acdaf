//! `evermap lane status`.

use crate::failure::Failure;

/// Tell which lanes there are
#[derive(Debug, clap::Args)]
pub struct Status {}

impl Status {
    pub fn run(&self) -> Result<(), Failure> {
        Err(Failure::Usage("not there yet".into()))
    }
}
