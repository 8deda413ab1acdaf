//! `evermap lane trace record`.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;

use evermap_compartment::wall;
use evermap_lane::Period;
use evermap_lane::trace::{self, Options, Recorder};

use super::destination::To;
use crate::failure::Failure;
use crate::output;
use crate::verbs::command::find;

/// Run a program and record what it reads and writes
///
/// With strace it is the program's calls, with files and offsets, and those of all that it starts. With perf it is the requests that
/// reach the disks, of the whole machine while the program runs; that needs rights.
///
/// Ctrl-C is the program's: when it ends, the recording does, and is kept. What the program leaves running is recorded as long as it
/// runs; another Ctrl-C ends that, too.
///
/// The exit code is that of the command, or 128 and the number of the signal that ended it; 127 when there is no such command, 126 when it
/// cannot be started, 125 when it cannot be recorded.
///
/// Example: evermap lane trace record --fps 24 -o clip.jsonl -- ffmpeg -re -i clip.mkv -f null -
#[derive(Debug, clap::Args)]
pub struct Record {
    /// What records: strace, perf; or auto: strace if it is there
    #[arg(long, value_name = "TOOL", default_value = "auto")]
    with: Recorder,
    #[command(flatten)]
    to: To,
    /// Say for each request which frame it is in: RATE a second, as 24, 23.976 or 24000/1001
    #[arg(long, value_name = "RATE")]
    fps: Option<Period>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
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
        let recorded = trace::record(&self.command, self.with, &options, &mut wall::run, &stop)?;
        let mut trace = recorded.trace;
        super::warn(&trace);
        if trace.events.is_empty() {
            output::warn("nothing was read or written that could be recorded");
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
