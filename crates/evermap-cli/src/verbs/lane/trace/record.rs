//! `evermap lane trace record`.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;

use evermap_compartment::wall;
use evermap_trace::{Options, Period, Recorder};

use super::destination::To;
use crate::failure::Failure;
use crate::output;
use crate::verbs::command::find;

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
    /// Command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND", value_hint = clap::ValueHint::AnyPath)]
    command: Vec<OsString>,
}

impl Record {
    pub fn run(&self) -> Result<(), Failure> {
        let Some(name) = self.command.first() else {
            return Err(Failure::Usage("no command".to_string()));
        };
        if find(name).is_none() {
            return Err(Failure::NoCommand { name: name.clone() });
        }
        let destination = self.to.prepare()?;
        let stop = evermap_transfer::cancelled_by_signals();
        let options = Options::default();
        let recorded =
            evermap_trace::record(&self.command, self.with, &options, &mut wall::run, &stop)?;
        let mut trace = recorded.trace;
        super::warn(&trace);
        if trace.events.is_empty() {
            output::warn("no reads or writes were recorded");
        }
        if let Some(period) = self.fps {
            trace.mark_frames(period);
        }
        destination.write(&trace)?;
        match recorded.status.code() {
            Some(0) => Ok(()),
            code => {
                let code = code.or(recorded.status.signal().map(|signal| 128 + signal));
                Err(Failure::CommandEnded { code: code.map_or(125, |code| code as u8) })
            }
        }
    }
}
