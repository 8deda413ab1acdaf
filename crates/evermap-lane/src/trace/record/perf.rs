//! perf as a recorder: system-wide events of block devices while the program runs.
//!
//! perf is given `cat` to run, which has a socket whose other end is held here. A byte that comes back says that the recording has begun; when
//! that end is closed it ends. That happens too when this process is killed: no recording of the whole machine outlives it, and no file of it, since
//! none has a name. perf has its data as its input, which it opens again by the name that each process has for its own.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use super::{Recorded, not_started, or_nothing, setting};
use crate::trace::{Error, Format, Options, Result, Trace};

const EVENTS: &str = "block:block_rq_issue,block:block_rq_complete";
const PACKAGE: &str = "linux-perf (Debian) or linux-tools (Ubuntu)";
const ITS_INPUT: &str = "/proc/self/fd/0";
/// Of what perf says when it fails.
const SAID_BYTES_MAX: usize = 4_096;

pub(super) fn record(
    command: &[OsString],
    options: &Options,
    run: &mut dyn FnMut(&mut Command) -> io::Result<ExitStatus>,
) -> Result<Recorded> {
    let Some((name, arguments)) = command.split_first() else {
        return Err(Error::NotStarted { program: String::new(), why: "no command".into() });
    };
    let data = unnamed()?;
    let recording = Recording::begin(&data)?;
    let status = run(Command::new(name).args(arguments)).map_err(|source| Error::NotStarted {
        program: name.display().to_string(),
        why: source.to_string(),
    });
    // Ended in any case: perf must not stay behind.
    recording.end()?;
    let status = status?;
    let options = Options { format: Some(Format::Perf), ..options.clone() };
    let trace = or_nothing(events(&data, &options), &options)?;
    Ok(Recorded { trace, status })
}

/// perf while it records. Dropping it ends that.
#[derive(Debug)]
struct Recording {
    perf: Child,
    /// What `cat` sends back, and waits for.
    line: Option<UnixStream>,
    said: File,
}

impl Recording {
    fn begin(data: &File) -> Result<Self> {
        let failed = |source| Error::Io { operation: "talk to", name: "perf".into(), source };
        let said = unnamed()?;
        let (line, its_line) = UnixStream::pair().map_err(failed)?;
        let perf = started(data, &said, its_line)?;
        let mut recording = Recording { perf, line: Some(line), said };
        match recording.has_begun() {
            Ok(true) => Ok(recording),
            Ok(false) => {
                // It has ended, and said why.
                let _ = recording.perf.wait();
                Err(refused(&recording.said))
            }
            Err(source) => Err(failed(source)),
        }
    }

    fn has_begun(&mut self) -> io::Result<bool> {
        let Some(line) = &mut self.line else { return Ok(false) };
        match line.write_all(b"\n").and_then(|()| line.read(&mut [0])) {
            // Gone, before or after it was written to.
            Err(error) if is_gone(&error) => Ok(false),
            read => Ok(read? == 1),
        }
    }

    fn end(mut self) -> Result<()> {
        self.line = None;
        match self.perf.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(_) => Err(refused(&self.said)),
            Err(source) => Err(Error::Io { operation: "wait for", name: "perf".into(), source }),
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.line = None;
        // Nothing is left to be done if it cannot be waited for.
        let _ = self.perf.wait();
    }
}

/// perf, once it is started. Its end of the line is its own alone then: the command that had it is gone.
fn started(data: &File, said: &File, its_line: UnixStream) -> Result<Child> {
    let mut perf = Command::new("perf");
    // In turn: no words, the whole machine, nothing looked up of programs and nothing kept of them in `~/.debug`.
    perf.args(["record", "-q", "-a", "--no-buildid", "--no-buildid-cache", "-e", EVENTS]);
    perf.args(["-o", ITS_INPUT, "--", "sh", "-c", "exec cat <&1"]);
    perf.stdin(shared(data)?).stdout(OwnedFd::from(its_line)).stderr(shared(said)?);
    // A group of its own: what a key sends to the program is not for perf.
    perf.process_group(0);
    perf.spawn().map_err(|source| not_started("perf", PACKAGE, source))
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// A file that nobody else sees, and that is gone with those who have it open.
fn unnamed() -> Result<File> {
    tempfile::tempfile().map_err(|source| Error::Io {
        operation: "make a file in",
        name: std::env::temp_dir().display().to_string(),
        source,
    })
}

fn shared(file: &File) -> Result<Stdio> {
    let failed = |source| Error::Io { operation: "start", name: "perf".into(), source };
    Ok(file.try_clone().map_err(failed)?.into())
}

/// Has perf write its events as lines, and reads them.
fn events(data: &File, options: &Options) -> Result<Trace> {
    let said = unnamed()?;
    let mut script = Command::new("perf");
    script.args(["script", "--ns", "-F", "comm,tid,cpu,time,event,trace", "-i", ITS_INPUT]);
    script.stdin(shared(data)?).stdout(Stdio::piped()).stderr(shared(&said)?);
    let mut script = script.spawn().map_err(|source| not_started("perf", PACKAGE, source))?;
    let trace = match script.stdout.take() {
        Some(output) => Trace::read_from(BufReader::new(output), "the recording", options),
        None => Err(refused(&said)),
    };
    // Its output is closed by now: it ends, whether all of it was read or not.
    let ended = script.wait();
    match (trace, ended) {
        (Err(Error::Empty { .. } | Error::NothingUsable { .. }), Ok(status))
            if !status.success() =>
        {
            Err(refused(&said))
        }
        (trace, _) => trace,
    }
}

/// What perf said, and what would help.
fn refused(said: &File) -> Error {
    let mut bytes = [0; SAID_BYTES_MAX];
    // Without a word of perf's, the remedy is all there is to say.
    let length = said.read_at(&mut bytes, 0).unwrap_or(0);
    let text = String::from_utf8_lossy(&bytes[..length]);
    let is_telling = |line: &&str| {
        let line = line.to_ascii_lowercase();
        ["permission", "error", "not ", "limited", "can't"].iter().any(|word| line.contains(word))
    };
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let why = lines().filter(is_telling).take(3).collect::<Vec<_>>().join("; ");
    let paranoid = setting("/proc/sys/kernel/perf_event_paranoid");
    let remedy = format!(
        "recording the whole machine needs root, or CAP_PERFMON and tracefs readable \
         (`mount -o remount,mode=755 /sys/kernel/tracing`), or `sysctl kernel.perf_event_paranoid=-1` (now {paranoid}); \
         `--with strace` needs no rights"
    );
    Error::Refused { tool: "perf", why, remedy }
}
