//! `evermap lane observe`.

use crate::failure::Failure;

/// Look at a running program and suggest a policy for it
#[derive(Debug, clap::Args)]
pub struct Observe {}

impl Observe {
    pub fn run(&self) -> Result<(), Failure> {
        Err(Failure::Usage("not there yet".into()))
    }
}
