//! Where lanes know of each other: an option that several verbs have.

use std::path::PathBuf;

use evermap_lane::guard::StateDirectory;

use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub struct State {
    /// Where lanes know of each other; without it /run/evermap-lane for root, else one of the user's
    #[arg(long = "state", value_name = "DIR")]
    path: Option<PathBuf>,
}

impl State {
    /// The one that is named; none if none is.
    pub fn directory(&self) -> Result<Option<StateDirectory>, Failure> {
        Ok(self.path.as_ref().map(StateDirectory::at).transpose()?)
    }

    /// The one that is named, or the user's.
    pub fn or_of_user(&self) -> Result<StateDirectory, Failure> {
        Ok(match self.directory()? {
            Some(directory) => directory,
            None => StateDirectory::of_user()?,
        })
    }
}
