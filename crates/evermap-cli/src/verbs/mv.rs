//! `evermap mv`: gives an object another name.

use std::path::Path;

use evermap::Store;

use crate::failure::Failure;

/// Give an object another name
///
/// Processes that have it open go on. A name that is taken is not overwritten.
#[derive(Debug, clap::Args)]
pub struct Mv {
    /// The name it has
    from: String,
    /// The name it gets
    to: String,
}

impl Mv {
    pub fn run(&self, directory: &Path) -> Result<(), Failure> {
        Ok(Store::open(directory)?.rename(&self.from, &self.to)?)
    }
}
