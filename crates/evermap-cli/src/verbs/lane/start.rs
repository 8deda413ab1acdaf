//! `evermap lane start`: becomes the program of a lane.

use std::ffi::OsString;
use std::path::PathBuf;

use evermap_lane::run::start;

use crate::failure::Failure;

/// Start the program of a lane (used by lanes only)
#[derive(Debug, clap::Args)]
pub struct Start {
    /// Descriptor of the channel to the lane
    #[arg(long, value_name = "N")]
    channel: i32,
    /// Path of the program
    #[arg(long, value_name = "FILE")]
    program: PathBuf,
    /// Command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND", value_hint = clap::ValueHint::AnyPath)]
    command: Vec<OsString>,
}

impl Start {
    pub fn run(&self) -> Result<(), Failure> {
        start::start(self.channel, self.program.clone(), &self.command)?;
        // The lane has received the reason and reports it.
        Err(Failure::CommandEnded { code: 126 })
    }
}
