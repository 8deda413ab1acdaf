//! `evermap lane trace import`.

use evermap_lane::Period;

use super::Reading;
use super::destination::To;
use crate::failure::Failure;

/// Bring another tool's trace into lines of JSON, as `simulate` takes them
///
/// Read are the lines of strace (-f -ttt -T -y), perf script (block:block_rq_issue and block:block_rq_complete), blkparse, fio's
/// write_iolog (version 2 and 3), MSR Cambridge, UMass SPC, and what this verb writes. What cannot be read is told on stderr, by
/// line, and left out.
///
/// Example: evermap lane trace import strace.log -o clip.jsonl --fps 24
#[derive(Debug, clap::Args)]
pub struct Import {
    #[command(flatten)]
    reading: Reading,
    #[command(flatten)]
    to: To,
    /// Say for each request which frame it is in: RATE a second, as 24, 23.976 or 24000/1001
    #[arg(long, value_name = "RATE")]
    fps: Option<Period>,
}

impl Import {
    pub fn run(&self) -> Result<(), Failure> {
        let destination = self.to.prepare()?;
        let mut trace = self.reading.read()?;
        if let Some(period) = self.fps {
            trace.mark_frames(period);
        }
        destination.write(&trace)
    }
}
