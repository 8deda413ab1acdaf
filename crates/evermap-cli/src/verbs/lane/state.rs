//! `--state` option, shared by several verbs.

use std::path::PathBuf;

use evermap_lane::guard::StateDirectory;

use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub struct State {
    /// State directory of lanes [default: /run/evermap-lane for root, else one of the user's]
    #[arg(long = "state", value_name = "DIR")]
    path: Option<PathBuf>,
}

impl State {
    /// State directory of the option, or `None`.
    pub fn directory(&self) -> Result<Option<StateDirectory>, Failure> {
        Ok(self.path.as_ref().map(StateDirectory::at).transpose()?)
    }

    /// State directory of the option, or the user's.
    pub fn or_of_user(&self) -> Result<StateDirectory, Failure> {
        Ok(match self.directory()? {
            Some(directory) => directory,
            None => StateDirectory::of_user()?,
        })
    }
}
