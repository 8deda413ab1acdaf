//! `evermap lane undo`.

use crate::failure::Failure;

/// Undo what lanes left behind whose processes were killed
#[derive(Debug, clap::Args)]
pub struct Undo {}

impl Undo {
    pub fn run(&self) -> Result<(), Failure> {
        Err(Failure::Usage("not there yet".into()))
    }
}
