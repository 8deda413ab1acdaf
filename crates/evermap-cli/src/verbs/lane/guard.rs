//! `evermap lane guard`: undoes a lane that is killed.

use std::path::PathBuf;
use std::time::Duration;

use evermap_lane::guard::{StateDirectory, guard};

use crate::failure::Failure;

/// Guard a lane (used by lanes only)
#[derive(Debug, clap::Args)]
pub struct Guard {
    /// Id of the lane
    #[arg(long, value_name = "ID")]
    id: String,
    /// State directory with the lane's journal
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// Maximum time of the lane in milliseconds
    #[arg(long, value_name = "N")]
    max_time_ms: Option<u64>,
}

impl Guard {
    pub fn run(&self) -> Result<(), Failure> {
        let state = StateDirectory::at(&self.state)?;
        Ok(guard(&state, &self.id, self.max_time_ms.map(Duration::from_millis))?)
    }
}
