//! `evermap rm`: removes objects.

use std::path::Path;

use evermap::Store;

use crate::failure::Failure;

/// Remove objects
///
/// Processes that have them open keep what they see. Names that cannot be removed are reported,
/// the others are removed all the same.
#[derive(Debug, clap::Args)]
pub struct Rm {
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
}

impl Rm {
    pub fn run(&self, directory: &Path) -> Result<(), Failure> {
        let store = Store::open(directory)?;
        let mut outcome = Ok(());
        for name in &self.names {
            if let Err(error) = store.remove(name) {
                // The last failure is the one that is returned; those before are said here.
                if let Err(earlier) = std::mem::replace(&mut outcome, Err(Failure::from(error))) {
                    earlier.report();
                }
            }
        }
        outcome
    }
}
