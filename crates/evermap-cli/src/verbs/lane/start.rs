//! `evermap lane start`: what becomes the program of a lane.

use std::ffi::OsString;
use std::path::PathBuf;

use evermap_lane::run::start;

use crate::failure::Failure;

/// For the lane itself
#[derive(Debug, clap::Args)]
pub struct Start {
    /// The descriptor by which the lane gives its orders
    #[arg(long, value_name = "N")]
    channel: i32,
    /// The program's file
    #[arg(long, value_name = "FILE")]
    program: PathBuf,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Start {
    pub fn run(&self) -> Result<(), Failure> {
        start::start(self.channel, self.program.clone(), &self.command)?;
        // The lane has heard why, and says it.
        Err(Failure::CommandEnded { code: 126 })
    }
}
