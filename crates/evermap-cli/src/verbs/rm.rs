//! `evermap rm`: removes objects.

use std::path::Path;

use clap_complete::ArgValueCompleter;
use evermap::Store;

use crate::completion::whole_names;
use crate::failure::Failure;
use crate::names;

/// Remove objects
///
/// Processes that have an object open keep reading it. A name that cannot be removed is reported,
/// and the others are removed. The end of a name is not enough here.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  evermap rm page.html feed.xml")]
pub struct Rm {
    /// Names of the objects, or paths of their files; `evermap ls` lists the names
    #[arg(value_name = "NAME", required = true)]
    #[arg(add = ArgValueCompleter::new(whole_names))]
    names: Vec<String>,
}

impl Rm {
    pub fn run(&self, directory: &Path) -> Result<(), Failure> {
        let store = Store::open(directory)?;
        let mut outcome = Ok(());
        for name in &self.names {
            let removed = names::resolve_whole(&store, directory, name)
                .and_then(|name| Ok(store.remove(&name)?));
            if let Err(failure) = removed {
                // The last failure is returned; earlier ones are reported here.
                if let Err(earlier) = std::mem::replace(&mut outcome, Err(failure)) {
                    earlier.report();
                }
            }
        }
        outcome
    }
}
