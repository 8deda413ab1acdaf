//! `evermap lane place`.

use crate::failure::Failure;

/// Put files on the fast tier, and take them back
#[derive(Debug, clap::Args)]
pub struct Place {}

impl Place {
    pub fn run(&self) -> Result<(), Failure> {
        Err(Failure::Usage("not there yet".into()))
    }
}
