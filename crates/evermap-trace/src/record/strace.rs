//! Recorder based on strace. strace runs as a detached process (`-D`), so the child that is started
//! is the program itself, with its own signals and exit code. Its lines are read through a named
//! pipe: writing them to a disk could disturb the requests under observation.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags};
use tempfile::TempDir;

use super::{Recorded, is_set, not_started, or_nothing, setting};
use crate::error::{Error, Result};
use crate::event::Trace;
use crate::format::Format;
use crate::read::Options;

/// All system calls that the parser understands. `?` marks those that an architecture may lack.
const CALLS: &str = "?open,?openat,?openat2,?creat,?close,?close_range,?dup,?dup2,?dup3,?fcntl,?fcntl64,\
?read,?readv,?pread64,?preadv,?preadv2,?write,?writev,?pwrite64,?pwritev,?pwritev2,?lseek,?_llseek,?sendfile,?sendfile64,\
?copy_file_range,?splice,?fsync,?fdatasync,?sync_file_range,?syncfs,?sync,?msync,?fallocate,?readahead,?fadvise64,?fadvise64_64,\
?mmap,?mmap2,?fork,?vfork,?clone,?clone3,?execve,?execveat,?io_uring_enter,?io_submit";

/// Interval between checks of the stop flag.
const POLL_NS: i64 = 100_000_000;
/// Maximum time to continue reading after a stop, even if there is more output.
const DRAIN_MAX: Duration = Duration::from_secs(1);
/// Enough of the first line to see whether the program was started.
const FIRST_BYTES_MAX: usize = 64 * 1024;

pub(super) fn record(
    command: &[OsString],
    options: &Options,
    run: &mut dyn FnMut(&mut Command) -> io::Result<ExitStatus>,
    stop: &AtomicBool,
) -> Result<Recorded> {
    let directory = directory()?;
    let path = directory.path().join("lines");
    let (pipe, writer) = pipe(&path)?;
    let options = Options { format: Some(Format::Strace), ..options.clone() };
    let ended = AtomicBool::new(false);
    let mut reader = Reader {
        pipe,
        directory: Some(directory),
        ended: &ended,
        stop,
        stopped: None,
        first: Vec::new(),
    };
    let (status, trace) = thread::scope(|scope| {
        let reading = thread::Builder::new().spawn_scoped(scope, || {
            let trace = Trace::read_from(BufReader::new(&mut reader), "the recording", &options);
            // Read the rest of the output: strace must not lose its reader while it traces
            // processes.
            let drained = io::copy(&mut reader, &mut io::sink());
            drained.map_err(|source| broken(&path, source)).and(trace)
        });
        let reading = reading.map_err(|source| broken(&path, source))?;
        let status = run(&mut strace(command, &path));
        // strace has opened the pipe or has failed. From now on, the pipe ends with strace.
        drop(writer);
        ended.store(true, Ordering::Release);
        Ok((status, reading.join()))
    })?;
    let status = status.map_err(|source| not_started("strace", "strace", source))?;
    let first = String::from_utf8_lossy(&reader.first).into_owned();
    let first = first.lines().next().unwrap_or_default();
    check_started(command, first)?;
    let trace = trace.map_err(|_| broken(&path, io::Error::other("its reader ended")))?;
    Ok(Recorded { trace: or_nothing(trace, &options)?, status })
}

fn strace(command: &[OsString], path: &Path) -> Command {
    let mut strace = Command::new("strace");
    // Options in order: detached, follow children, no messages about them, seconds since 1970,
    // durations, names of files, no contents, no signals. With seccomp, calls that are not traced
    // do not stop the program.
    strace.args(["-D", "-f", "-qq", "-ttt", "-T", "-y", "-s", "0", "-e", "signal=none"]);
    strace.args(["--seccomp-bpf", "-e"]).arg(format!("trace={CALLS}"));
    strace.arg("-o").arg(path).arg("--").args(command);
    strace
}

/// Creates a directory for the pipe, which is removed when dropped.
fn directory() -> Result<TempDir> {
    let made = tempfile::Builder::new().prefix("evermap-trace-").tempdir();
    made.map_err(|source| Error::Io {
        operation: "create a directory in",
        name: std::env::temp_dir().display().to_string(),
        source,
    })
}

/// Creates a named pipe, and opens it for reading and writing. The reader sees no end while the
/// writer is open.
fn pipe(path: &Path) -> Result<(File, File)> {
    let failed = |error: rustix::io::Errno| broken(path, error.into());
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(CWD, path, kind, Mode::RUSR | Mode::WUSR, 0).map_err(failed)?;
    let open = |flags| rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty());
    // Open without waiting for a writer. Later reads follow a `poll`.
    let reader = open(OFlags::RDONLY | OFlags::NONBLOCK).map_err(failed)?;
    let writer = open(OFlags::WRONLY).map_err(failed)?;
    Ok((reader.into(), writer.into()))
}

fn broken(path: &Path, source: io::Error) -> Error {
    Error::Io { operation: "record through", name: path.display().to_string(), source }
}

/// Reader of strace's lines. It ends when strace does, or on request once the program has ended.
#[derive(Debug)]
struct Reader<'a> {
    pipe: File,
    /// Directory of the pipe. Removed after the first write, so that it does not remain if this
    /// process is killed.
    directory: Option<TempDir>,
    ended: &'a AtomicBool,
    stop: &'a AtomicBool,
    /// Time at which the stop flag was first seen.
    stopped: Option<Instant>,
    first: Vec<u8>,
}

impl Reader<'_> {
    /// Returns true if no more lines are awaited. Lines that the program wrote before its end may
    /// still be in the pipe, and are read first.
    fn is_done(&mut self, is_quiet: bool) -> bool {
        if !self.ended.load(Ordering::Acquire) || !is_set(self.stop) {
            return false;
        }
        let stopped = *self.stopped.get_or_insert_with(Instant::now);
        is_quiet || stopped.elapsed() >= DRAIN_MAX
    }
}

impl Read for Reader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wait = Timespec { tv_sec: 0, tv_nsec: POLL_NS };
        loop {
            let mut polled = [PollFd::new(&self.pipe, PollFlags::IN)];
            let is_quiet = match poll(&mut polled, Some(&wait)) {
                Ok(count) => count == 0,
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            if self.is_done(is_quiet) {
                return Ok(0);
            }
            if is_quiet {
                continue;
            }
            let count = match self.pipe.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                read => read?,
            };
            self.directory = None;
            let room = FIRST_BYTES_MAX.saturating_sub(self.first.len());
            if room > 0 && !self.first.contains(&b'\n') {
                self.first.extend_from_slice(&buffer[..count.min(room)]);
            }
            return Ok(count);
        }
    }
}

/// Checks the first line, which reports the start of the program or its failure. It is missing if
/// strace itself failed.
fn check_started(command: &[OsString], first: &str) -> Result<()> {
    let program = command.first().map_or_else(String::new, |name| name.display().to_string());
    match first.rsplit_once(" = ") {
        None if !first.contains("execve(") => Err(refused()),
        Some((_, result)) if result.starts_with("-1 ") => {
            // Cut off the duration.
            let why = result[3..].split('<').next().unwrap_or_default().trim().to_string();
            Err(Error::NotStarted { program, why })
        }
        _ => Ok(()),
    }
}

fn refused() -> Error {
    let remedy = match setting("/proc/sys/kernel/yama/ptrace_scope").as_str() {
        "2" => "kernel.yama.ptrace_scope is 2, so only root may trace: run as root, or set it to 1",
        "3" => {
            "kernel.yama.ptrace_scope is 3, so tracing is disabled until the machine is restarted"
        }
        _ => {
            "see its messages above; a container needs permission to ptrace (`--cap-add SYS_PTRACE`), and strace must be 5.3 or later"
        }
    };
    Error::Refused { tool: "strace", why: "it traced nothing".into(), remedy: remedy.into() }
}
