//! Recording what a program reads and writes, by the tools that a distribution has: strace for its calls, perf for the requests
//! that reach the disks. Starts processes, and ends those that it started; leaves no files, also not when it is killed: what perf needs has no
//! name, and the pipe of strace loses its own with the first line.

mod perf;
mod strace;

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Error, Options, Result, Trace};

/// What records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum With {
    /// strace when it is there, else perf (`auto`).
    #[default]
    Auto,
    /// Calls of the program and of all that it starts; files by name, offsets within them (`strace`).
    Strace,
    /// Requests to block devices, of the whole machine while the program runs; needs rights (`perf`).
    Perf,
}

impl FromStr for With {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(With::Auto),
            "strace" => Ok(With::Strace),
            "perf" => Ok(With::Perf),
            _ => Err(format!("`{text}` records nothing; there are auto, strace, perf")),
        }
    }
}

/// What was recorded.
#[derive(Debug)]
#[non_exhaustive]
pub struct Recorded {
    /// The trace; without events if the program neither read nor wrote.
    pub trace: Trace,
    /// How the program ended.
    pub status: ExitStatus,
}

/// Records a program from its beginning to its end.
///
/// `run` runs the command that it is given to its end: [`Command::status`] will do; a command line will want one that hands signals on. That command is
/// the program itself, or becomes it. What the program leaves running is recorded by strace until it ends, too, or until `stop` is set.
///
/// Cost, measured for `pread` of 4 KiB from the page cache under strace: 127 to 138 µs a call instead of 0.8; calls that are not recorded are
/// not slowed.
///
/// # Errors
/// The tool is not there, or is refused; the program cannot be started.
pub fn record(
    command: &[OsString],
    with: With,
    options: &Options,
    run: &mut dyn FnMut(&mut Command) -> io::Result<ExitStatus>,
    stop: &AtomicBool,
) -> Result<Recorded> {
    let is_strace = match with {
        With::Strace => true,
        With::Perf => false,
        With::Auto => is_there("strace") || !is_there("perf"),
    };
    let mut recorded = match is_strace {
        true => strace::record(command, options, run, stop)?,
        false => perf::record(command, options, run)?,
    };
    // Nobody has the tool's lines: their numbers would lead nowhere.
    recorded.trace.warnings.iter_mut().for_each(|warning| warning.line = None);
    Ok(recorded)
}

/// Whether a program of this name is in the places where programs are.
fn is_there(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// Why a tool could not be started.
fn not_started(tool: &'static str, package: &'static str, source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::NotFound => Error::NoTool { tool, package },
        _ => Error::Io { operation: "start", name: tool.into(), source },
    }
}

/// Nothing to read and write is nothing wrong, once a program has run.
fn or_nothing(read: Result<Trace>, options: &Options) -> Result<Trace> {
    match (read, options.format) {
        (Err(Error::NothingUsable { .. } | Error::Empty { .. }), Some(format)) => {
            Ok(Trace { format, events: Vec::new(), warnings: Vec::new() })
        }
        (read, _) => read,
    }
}

/// The first line of a kernel's setting; empty where there is none.
fn setting(path: &str) -> String {
    let mut text = String::new();
    let file = std::fs::File::open(Path::new(path));
    // A setting that cannot be read is one that is not known.
    let _ = file.and_then(|file| file.take(64).read_to_string(&mut text));
    text.trim().to_string()
}

fn is_set(stop: &AtomicBool) -> bool {
    stop.load(Ordering::Relaxed)
}
