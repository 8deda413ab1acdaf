//! `evermap mv`: renames an object.

use std::path::Path;

use clap_complete::ArgValueCompleter;
use evermap::Store;

use crate::completion::whole_names;
use crate::failure::Failure;
use crate::names;

/// Rename an object
///
/// Processes that have the object open are not affected. An existing object is not replaced. Guest
/// objects cannot be renamed, because a guest finds its object by the name.
///
/// A renamed document still follows its source file; `evermap freeze` ends that.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  evermap mv page.html letter.html")]
pub struct Mv {
    /// Current name
    #[arg(add = ArgValueCompleter::new(whole_names))]
    from: String,
    /// New name, of at most 255 bytes
    to: String,
}

impl Mv {
    pub fn run(&self, directory: &Path) -> Result<(), Failure> {
        let store = Store::open(directory)?;
        let from = names::resolve_whole(&store, directory, &self.from)?;
        if names::is_guest_object(&store, &from) {
            return Err(Failure::GuestName { name: from });
        }
        let to = names::renamed(&store, &from, &self.to)?;
        Ok(store.rename(&from, &to)?)
    }
}
