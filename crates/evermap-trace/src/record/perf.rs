//! Recorder based on perf: events of all block devices while the program runs.
//!
//! perf runs `cat`, which is connected to this process by a socket. A byte echoed by `cat` shows
//! that the recording has begun; closing the socket ends it. The socket also closes if this process
//! is killed, so no recording of the whole machine outlives it. perf writes to an unnamed file,
//! which it inherits as its standard input and opens again through `/proc/self/fd`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use super::{Recorded, not_started, or_nothing, setting};
use crate::error::{Error, Result};
use crate::event::Trace;
use crate::format::Format;
use crate::read::Options;

const EVENTS: &str = "block:block_rq_issue,block:block_rq_complete";
const PACKAGE: &str = "linux-perf (Debian) or linux-tools (Ubuntu)";
const STDIN_PATH: &str = "/proc/self/fd/0";
/// Maximum length of perf's error output that is used.
const STDERR_BYTES_MAX: usize = 4_096;

pub(super) fn record(
    command: &[OsString],
    options: &Options,
    run: &mut dyn FnMut(&mut Command) -> io::Result<ExitStatus>,
) -> Result<Recorded> {
    let Some((name, arguments)) = command.split_first() else {
        return Err(Error::NotStarted { program: String::new(), why: "no command".into() });
    };
    let data = unnamed_file()?;
    let recording = Recording::begin(&data)?;
    let status = run(Command::new(name).args(arguments)).map_err(|source| Error::NotStarted {
        program: name.display().to_string(),
        why: source.to_string(),
    });
    // End the recording in any case: perf must not continue to run.
    recording.end()?;
    let status = status?;
    let options = Options { format: Some(Format::Perf), ..options.clone() };
    let trace = or_nothing(events(&data, &options), &options)?;
    Ok(Recorded { trace, status })
}

/// Running perf process. Dropping it ends the recording.
#[derive(Debug)]
struct Recording {
    perf: Child,
    /// Socket connected to `cat`.
    line: Option<UnixStream>,
    stderr: File,
}

impl Recording {
    fn begin(data: &File) -> Result<Self> {
        let failed =
            |source| Error::Io { operation: "communicate with", name: "perf".into(), source };
        let stderr = unnamed_file()?;
        let (line, peer) = UnixStream::pair().map_err(failed)?;
        let perf = start(data, &stderr, peer)?;
        let mut recording = Recording { perf, line: Some(line), stderr };
        match recording.has_begun() {
            Ok(true) => Ok(recording),
            Ok(false) => {
                // perf has ended with an error message.
                let _ = recording.perf.wait();
                Err(refused(&recording.stderr))
            }
            Err(source) => Err(failed(source)),
        }
    }

    fn has_begun(&mut self) -> io::Result<bool> {
        let Some(line) = &mut self.line else { return Ok(false) };
        match line.write_all(b"\n").and_then(|()| line.read(&mut [0])) {
            // perf has ended, before or after the write.
            Err(error) if is_gone(&error) => Ok(false),
            read => Ok(read? == 1),
        }
    }

    fn end(mut self) -> Result<()> {
        self.line = None;
        match self.perf.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(_) => Err(refused(&self.stderr)),
            Err(source) => Err(Error::Io { operation: "wait for", name: "perf".into(), source }),
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.line = None;
        // If waiting fails, nothing else can be done.
        let _ = self.perf.wait();
    }
}

/// Starts perf. The command that held perf's end of the socket is dropped here, so only perf has
/// it.
fn start(data: &File, stderr: &File, peer: UnixStream) -> Result<Child> {
    let mut perf = Command::new("perf");
    // Options in order: quiet, whole machine, no build ids, no copies of executables in `~/.debug`.
    perf.args(["record", "-q", "-a", "--no-buildid", "--no-buildid-cache", "-e", EVENTS]);
    perf.args(["-o", STDIN_PATH, "--", "sh", "-c", "exec cat <&1"]);
    perf.stdin(shared(data)?).stdout(OwnedFd::from(peer)).stderr(shared(stderr)?);
    // Use a separate process group, so that signals from the keyboard do not reach perf.
    perf.process_group(0);
    perf.spawn().map_err(|source| not_started("perf", PACKAGE, source))
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// Creates an unnamed file, which is deleted when all descriptors are closed.
fn unnamed_file() -> Result<File> {
    tempfile::tempfile().map_err(|source| Error::Io {
        operation: "create a file in",
        name: std::env::temp_dir().display().to_string(),
        source,
    })
}

fn shared(file: &File) -> Result<Stdio> {
    let failed = |source| Error::Io { operation: "start", name: "perf".into(), source };
    Ok(file.try_clone().map_err(failed)?.into())
}

/// Runs `perf script` on the recording, and parses its output.
fn events(data: &File, options: &Options) -> Result<Trace> {
    let stderr = unnamed_file()?;
    let mut script = Command::new("perf");
    script.args(["script", "--ns", "-F", "comm,tid,cpu,time,event,trace", "-i", STDIN_PATH]);
    script.stdin(shared(data)?).stdout(Stdio::piped()).stderr(shared(&stderr)?);
    let mut script = script.spawn().map_err(|source| not_started("perf", PACKAGE, source))?;
    let trace = match script.stdout.take() {
        Some(output) => Trace::read_from(BufReader::new(output), "the recording", options),
        None => Err(refused(&stderr)),
    };
    // Its output is closed, so it ends even if not all of it was read.
    let ended = script.wait();
    match (trace, ended) {
        (Err(Error::Empty { .. } | Error::NothingUsable { .. }), Ok(status))
            if !status.success() =>
        {
            Err(refused(&stderr))
        }
        (trace, _) => trace,
    }
}

/// Builds an error from perf's output, with the remedy.
fn refused(stderr: &File) -> Error {
    let mut bytes = [0; STDERR_BYTES_MAX];
    // Without any output, the remedy alone has to suffice.
    let length = stderr.read_at(&mut bytes, 0).unwrap_or(0);
    let text = String::from_utf8_lossy(&bytes[..length]);
    let is_relevant = |line: &&str| {
        let line = line.to_ascii_lowercase();
        ["permission", "error", "not ", "limited", "can't"].iter().any(|word| line.contains(word))
    };
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let why = lines().filter(is_relevant).take(3).collect::<Vec<_>>().join("; ");
    let paranoid = setting("/proc/sys/kernel/perf_event_paranoid");
    let remedy = format!(
        "recording the whole machine needs root, or CAP_PERFMON and a readable tracefs \
         (`mount -o remount,mode=755 /sys/kernel/tracing`), or `sysctl kernel.perf_event_paranoid=-1` (now {paranoid}); \
         `--with strace` needs no privileges"
    );
    Error::Refused { tool: "perf", why, remedy }
}
