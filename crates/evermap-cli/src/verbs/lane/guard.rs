//! `evermap lane guard`: what a lane starts to be undone when it is killed.

use std::path::PathBuf;
use std::time::Duration;

use evermap_lane::guard::{StateDirectory, guard};

use crate::failure::Failure;

/// For the lane itself
#[derive(Debug, clap::Args)]
pub struct Guard {
    /// Of which lane
    #[arg(long, value_name = "ID")]
    id: String,
    /// Where its journal is
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// When it is over
    #[arg(long, value_name = "N")]
    max_time_ms: Option<u64>,
}

impl Guard {
    pub fn run(&self) -> Result<(), Failure> {
        let state = StateDirectory::at(&self.state)?;
        Ok(guard(&state, &self.id, self.max_time_ms.map(Duration::from_millis))?)
    }
}
