//! `evermap mv`: renames an object.

use std::path::Path;

use clap_complete::ArgValueCompleter;
use evermap::Store;

use crate::completion::objects;
use crate::failure::Failure;
use crate::names;

/// Rename an object
///
/// Processes that have the object open are not affected. An existing object is not replaced. Guest
/// objects cannot be renamed, because a guest finds its object by the name.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  evermap mv page.html letter.html")]
pub struct Mv {
    /// Current name
    #[arg(add = ArgValueCompleter::new(objects))]
    from: String,
    /// New name
    to: String,
}

impl Mv {
    pub fn run(&self, directory: &Path) -> Result<(), Failure> {
        let to = names::check_given(&self.to)?;
        let store = Store::open(directory)?;
        let from = names::resolve(&store, directory, &self.from)?;
        if names::is_guest_object(&store, &from) {
            return Err(Failure::GuestName { name: from });
        }
        Ok(store.rename(&from, to)?)
    }
}
