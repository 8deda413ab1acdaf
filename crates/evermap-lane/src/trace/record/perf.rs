//! perf as a recorder: system-wide events of block devices while the program runs.
//!
//! perf is given `cat` to run, whose end of a pipe is held here. A byte that comes back says that the recording has begun; when
//! the pipe is closed it ends. That happens too when this process is killed: no recording of the whole machine outlives it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use super::{Recorded, folder, not_started, or_nothing, setting};
use crate::trace::{Error, Format, Options, Result, Trace};

const EVENTS: &str = "block:block_rq_issue,block:block_rq_complete";
const PACKAGE: &str = "linux-perf (Debian) or linux-tools (Ubuntu)";
/// Of what perf says when it fails.
const SAID_BYTES_MAX: u64 = 4_096;

pub(super) fn record(
    command: &[OsString],
    options: &Options,
    run: &mut dyn FnMut(&mut Command) -> io::Result<ExitStatus>,
) -> Result<Recorded> {
    let folder = folder()?;
    let data = folder.path().join("events");
    let said = folder.path().join("said");
    let Some((name, arguments)) = command.split_first() else {
        return Err(Error::NotStarted { program: String::new(), why: "no command".into() });
    };
    let recording = Recording::begin(&data, &said)?;
    let status = run(Command::new(name).args(arguments)).map_err(|source| Error::NotStarted {
        program: name.display().to_string(),
        why: source.to_string(),
    });
    // Ended in any case: perf must not stay behind.
    recording.end(&said)?;
    let status = status?;
    let options = Options { format: Some(Format::Perf), ..options.clone() };
    let trace = or_nothing(events(&data, &said, &options), &options)?;
    Ok(Recorded { trace, status })
}

/// perf while it records. Dropping it ends that.
#[derive(Debug)]
struct Recording {
    perf: Child,
}

impl Recording {
    fn begin(data: &Path, said: &Path) -> Result<Self> {
        let mut perf = Command::new("perf");
        perf.args(["record", "-q", "-a", "-e", EVENTS, "-o"]).arg(data).args(["--", "cat"]);
        // A group of its own: what a key sends to the program is not for perf.
        perf.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(file(said)?).process_group(0);
        let perf = perf.spawn().map_err(|source| not_started("perf", PACKAGE, source))?;
        let mut recording = Recording { perf };
        match recording.has_begun() {
            Ok(true) => Ok(recording),
            Ok(false) => {
                // It has ended, and said why.
                let _ = recording.perf.wait();
                Err(refused(said))
            }
            Err(source) => Err(Error::Io { operation: "talk to", name: "perf".into(), source }),
        }
    }

    fn has_begun(&mut self) -> io::Result<bool> {
        let (Some(input), Some(output)) = (&mut self.perf.stdin, &mut self.perf.stdout) else {
            return Ok(false);
        };
        match input.write_all(b"\n") {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(false),
            written => written?,
        }
        Ok(output.read(&mut [0])? == 1)
    }

    fn end(mut self, said: &Path) -> Result<()> {
        drop(self.perf.stdin.take());
        let ended = self.perf.wait();
        match ended {
            Ok(status) if status.success() => Ok(()),
            Ok(_) => Err(refused(said)),
            Err(source) => Err(Error::Io { operation: "wait for", name: "perf".into(), source }),
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        drop(self.perf.stdin.take());
        // Nothing is left to be done if it cannot be waited for.
        let _ = self.perf.wait();
    }
}

fn file(path: &Path) -> Result<File> {
    let name = || path.display().to_string();
    File::create(path).map_err(|source| Error::Io { operation: "write", name: name(), source })
}

/// Has perf write its events as lines, and reads them.
fn events(data: &Path, said: &Path, options: &Options) -> Result<Trace> {
    let mut script = Command::new("perf");
    script.args(["script", "--ns", "-F", "comm,tid,cpu,time,event,trace", "-i"]).arg(data);
    script.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file(said)?);
    let mut script = script.spawn().map_err(|source| not_started("perf", PACKAGE, source))?;
    let trace = match script.stdout.take() {
        Some(output) => Trace::read_from(BufReader::new(output), "the recording", options),
        None => Err(refused(said)),
    };
    // Its output is closed by now: it ends, whether all of it was read or not.
    let ended = script.wait();
    match (trace, ended) {
        (Err(Error::Empty { .. } | Error::NothingUsable { .. }), Ok(status))
            if !status.success() =>
        {
            Err(refused(said))
        }
        (trace, _) => trace,
    }
}

/// What perf said, and what would help.
fn refused(said: &Path) -> Error {
    let mut bytes = Vec::new();
    let file = File::open(said);
    // Without a word of perf's, the remedy is all there is to say.
    let _ = file.and_then(|file| file.take(SAID_BYTES_MAX).read_to_end(&mut bytes));
    let text = String::from_utf8_lossy(&bytes);
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
