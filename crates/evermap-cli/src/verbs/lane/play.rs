//! `evermap lane play`.

use crate::failure::Failure;

/// Play a clip, and count the deadlines that were missed
#[derive(Debug, clap::Args)]
pub struct Play {}

impl Play {
    pub fn run(&self) -> Result<(), Failure> {
        Err(Failure::Usage("not there yet".into()))
    }
}
