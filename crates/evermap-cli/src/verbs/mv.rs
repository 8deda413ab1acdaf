//! `evermap mv`: gives an object another name.

use std::path::Path;

use evermap::Store;

use crate::failure::Failure;
use crate::names;

/// Give an object another name
///
/// Processes that have it open go on. A name that is taken is not overwritten. Guest objects keep their
/// names: a guest finds its object by the name.
#[derive(Debug, clap::Args)]
pub struct Mv {
    /// The name it has
    from: String,
    /// The name it gets
    to: String,
}

impl Mv {
    pub fn run(&self, directory: &Path) -> Result<(), Failure> {
        let to = names::check_given(&self.to)?;
        let store = Store::open(directory)?;
        let from = names::resolve(&store, directory, &self.from)?;
        if names::is_of_guest(&store, &from) {
            return Err(Failure::GuestName { name: from });
        }
        Ok(store.rename(&from, to)?)
    }
}
