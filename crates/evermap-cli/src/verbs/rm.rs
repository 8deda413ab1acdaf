//! `evermap rm`: removes objects.

use std::path::Path;

use evermap::Store;

use crate::failure::Failure;
use crate::names;

/// Remove objects
///
/// Processes that have them open keep what they see. Names that cannot be removed are reported,
/// the others are removed all the same.
#[derive(Debug, clap::Args)]
pub struct Rm {
    /// Their names, or the paths of their files: `evermap ls` lists them
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
}

impl Rm {
    pub fn run(&self, directory: &Path) -> Result<(), Failure> {
        let store = Store::open(directory)?;
        let mut outcome = Ok(());
        for name in &self.names {
            let removed =
                names::resolve(&store, directory, name).and_then(|name| Ok(store.remove(&name)?));
            if let Err(failure) = removed {
                // The last failure is the one that is returned; those before are said here.
                if let Err(earlier) = std::mem::replace(&mut outcome, Err(failure)) {
                    earlier.report();
                }
            }
        }
        outcome
    }
}
