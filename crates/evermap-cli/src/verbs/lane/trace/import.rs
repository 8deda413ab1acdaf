//! `evermap lane trace import`.

use evermap_trace::Period;

use super::Reading;
use super::destination::To;
use crate::failure::Failure;

/// Convert another tool's trace to JSON lines
///
/// Reads strace (-f -ttt -T -y), perf script (block:block_rq_issue and block:block_rq_complete),
/// blkparse, fio's write_iolog (versions 2 and 3), MSR Cambridge, UMass SPC, and this verb's own
/// output. Unreadable lines are reported on stderr and skipped.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  evermap lane trace import strace.log -o clip.jsonl --fps 24")]
pub struct Import {
    #[command(flatten)]
    reading: Reading,
    #[command(flatten)]
    to: To,
    /// Mark each request with its frame, at RATE frames a second (24, 23.976 or 24000/1001)
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
