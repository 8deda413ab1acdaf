//! `evermap lane trace record`.

use evermap_compartment::wall;
use evermap_trace::{Options, Period, Recorder};

use super::destination::To;
use crate::failure::Failure;
use crate::output;
use crate::verbs::command::{CommandLine, pass_on};

/// Run a program and record its reads and writes
///
/// With strace it records system calls of the program and its children, with files and offsets.
/// With perf it records the disk requests of the whole machine while the program runs, which needs
/// rights.
///
/// Ctrl-C goes to the program. When the program ends, the recording ends and is kept. Processes
/// that the program leaves running are recorded until they end; another Ctrl-C ends that, too.
///
/// Exits with the command's exit code, or 128 plus the signal that ended it; 127 if the command is
/// not found, 126 if it cannot be started, 125 if it cannot be recorded.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  evermap lane trace record --fps 24 -o clip.jsonl -- ffmpeg -re -i clip.mkv -f null -")]
pub struct Record {
    /// Recorder: strace, perf, or auto for strace if it is installed, else perf
    #[arg(long, value_name = "TOOL", default_value = "auto")]
    with: Recorder,
    #[command(flatten)]
    to: To,
    /// Mark each request with its frame, at RATE frames a second (24, 23.976 or 24000/1001)
    #[arg(long, value_name = "RATE")]
    fps: Option<Period>,
    #[command(flatten)]
    command: CommandLine,
}

impl Record {
    pub fn run(&self) -> Result<(), Failure> {
        self.command.find()?;
        let destination = self.to.prepare()?;
        let stop = evermap_transfer::cancelled_by_signals();
        let options = Options::default();
        let recorded =
            evermap_trace::record(&self.command.words, self.with, &options, &mut wall::run, &stop)?;
        let mut trace = recorded.trace;
        super::warn(&trace);
        if trace.events.is_empty() {
            output::warn("no reads or writes were recorded");
        }
        if let Some(period) = self.fps {
            trace.mark_frames(period);
        }
        destination.write(&trace)?;
        pass_on(recorded.status)
    }
}
