//! strace as a recorder: the program is the process that is run, strace traces it from beside (`-D`), so that signals and the exit code are the
//! program's own. Its lines come through a named pipe and are read at once: nothing is written to a disk, whose requests might be what is being looked at.

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
use crate::trace::{Error, Format, Options, Result, Trace};

/// All that the parser understands; `?` for those that this machine may not have.
const CALLS: &str = "?open,?openat,?openat2,?creat,?close,?close_range,?dup,?dup2,?dup3,?fcntl,?fcntl64,\
?read,?readv,?pread64,?preadv,?preadv2,?write,?writev,?pwrite64,?pwritev,?pwritev2,?lseek,?_llseek,?sendfile,?sendfile64,\
?copy_file_range,?splice,?fsync,?fdatasync,?sync_file_range,?syncfs,?sync,?msync,?fallocate,?readahead,?fadvise64,?fadvise64_64,\
?mmap,?mmap2,?fork,?vfork,?clone,?clone3,?execve,?execveat,?io_uring_enter,?io_submit";

/// How often it is looked whether to stop.
const LOOK_NS: i64 = 100_000_000;
/// After it was told to stop, who is left running is listened to for no longer than this, however much there is to hear.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Of the first line, enough to see whether the program was started.
const FIRST_BYTES_MAX: usize = 64 * 1024;

pub(super) fn record(
    command: &[OsString],
    options: &Options,
    run: &mut dyn FnMut(&mut Command) -> io::Result<ExitStatus>,
    stop: &AtomicBool,
) -> Result<Recorded> {
    let folder = folder()?;
    let path = folder.path().join("lines");
    let (pipe, writer) = pipe(&path)?;
    let options = Options { format: Some(Format::Strace), ..options.clone() };
    let ended = AtomicBool::new(false);
    let mut reader = Reader {
        pipe,
        folder: Some(folder),
        ended: &ended,
        stop,
        stopped: None,
        first: Vec::new(),
    };
    let (status, trace) = thread::scope(|scope| {
        let reading = thread::Builder::new().spawn_scoped(scope, || {
            let trace = Trace::read_from(BufReader::new(&mut reader), "the recording", &options);
            // Whatever was not wanted: strace must not find its reader gone while it has programs to look after.
            let drained = io::copy(&mut reader, &mut io::sink());
            drained.map_err(|source| broken(&path, source)).and(trace)
        });
        let reading = reading.map_err(|source| broken(&path, source))?;
        let status = run(&mut strace(command, &path));
        // strace has the pipe open by now, or never will: from here on, its end is the recording's.
        drop(writer);
        ended.store(true, Ordering::Release);
        Ok((status, reading.join()))
    })?;
    let status = status.map_err(|source| not_started("strace", "strace", source))?;
    let first = String::from_utf8_lossy(&reader.first).into_owned();
    let first = first.lines().next().unwrap_or_default();
    started(command, first)?;
    let trace = trace.map_err(|_| broken(&path, io::Error::other("its reader ended")))?;
    Ok(Recorded { trace: or_nothing(trace, &options)?, status })
}

fn strace(command: &[OsString], path: &Path) -> Command {
    let mut strace = Command::new("strace");
    // In turn: beside the program, children too, no word about them, seconds since 1970, durations, names of files, no
    // contents, no signals; and calls that are not wanted don't stop the program.
    strace.args(["-D", "-f", "-qq", "-ttt", "-T", "-y", "-s", "0", "-e", "signal=none"]);
    strace.args(["--seccomp-bpf", "-e"]).arg(format!("trace={CALLS}"));
    strace.arg("-o").arg(path).arg("--").args(command);
    strace
}

/// A folder for the pipe, which is gone when it is dropped.
fn folder() -> Result<TempDir> {
    let made = tempfile::Builder::new().prefix("evermap-trace-").tempdir();
    made.map_err(|source| Error::Io {
        operation: "make a folder in",
        name: std::env::temp_dir().display().to_string(),
        source,
    })
}

/// A named pipe, its end to read from, and one to write to: as long as that is there, the other has no end.
fn pipe(path: &Path) -> Result<(File, File)> {
    let failed = |error: rustix::io::Errno| broken(path, error.into());
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(CWD, path, kind, Mode::RUSR | Mode::WUSR, 0).map_err(failed)?;
    let open = |flags| rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty());
    // Reading without waiting for who writes; after that, reads are only made when there is something.
    let reader = open(OFlags::RDONLY | OFlags::NONBLOCK).map_err(failed)?;
    let writer = open(OFlags::WRONLY).map_err(failed)?;
    Ok((reader.into(), writer.into()))
}

fn broken(path: &Path, source: io::Error) -> Error {
    Error::Io { operation: "record through", name: path.display().to_string(), source }
}

/// The lines while they come. They end when strace does; or when it is told to stop, once the program has ended.
#[derive(Debug)]
struct Reader<'a> {
    pipe: File,
    /// Where the pipe has its name: not needed once somebody has written to it, and so gone even if this process is killed.
    folder: Option<TempDir>,
    ended: &'a AtomicBool,
    stop: &'a AtomicBool,
    /// When that was seen first.
    stopped: Option<Instant>,
    first: Vec<u8>,
}

impl Reader<'_> {
    /// Whether no more is waited for. What the program wrote before its end may still be in the pipe: that is read.
    fn is_over(&mut self, is_quiet: bool) -> bool {
        if !self.ended.load(Ordering::Acquire) || !is_set(self.stop) {
            return false;
        }
        let stopped = *self.stopped.get_or_insert_with(Instant::now);
        is_quiet || stopped.elapsed() >= LAST_WORDS
    }
}

impl Read for Reader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wait = Timespec { tv_sec: 0, tv_nsec: LOOK_NS };
        loop {
            let mut polled = [PollFd::new(&self.pipe, PollFlags::IN)];
            let is_quiet = match poll(&mut polled, Some(&wait)) {
                Ok(count) => count == 0,
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            if self.is_over(is_quiet) {
                return Ok(0);
            }
            if is_quiet {
                continue;
            }
            let count = match self.pipe.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                read => read?,
            };
            self.folder = None;
            let room = FIRST_BYTES_MAX.saturating_sub(self.first.len());
            if room > 0 && !self.first.contains(&b'\n') {
                self.first.extend_from_slice(&buffer[..count.min(room)]);
            }
            return Ok(count);
        }
    }
}

/// The first line is the program's beginning, or why it has none; there is none when strace itself was refused.
fn started(command: &[OsString], first: &str) -> Result<()> {
    let program = command.first().map_or_else(String::new, |name| name.display().to_string());
    match first.rsplit_once(" = ") {
        None if !first.contains("execve(") => Err(refused()),
        Some((_, result)) if result.starts_with("-1 ") => {
            // Without how long it took.
            let why = result[3..].split('<').next().unwrap_or_default().trim().to_string();
            Err(Error::NotStarted { program, why })
        }
        _ => Ok(()),
    }
}

fn refused() -> Error {
    let remedy = match setting("/proc/sys/kernel/yama/ptrace_scope").as_str() {
        "2" => "kernel.yama.ptrace_scope is 2: only root may trace; be root, or have it set to 1",
        "3" => "kernel.yama.ptrace_scope is 3: nobody may trace until the machine is started anew",
        _ => {
            "what it said is above; a container needs the right to ptrace (`--cap-add SYS_PTRACE`), and strace must be 5.3 or later"
        }
    };
    Error::Refused { tool: "strace", why: "it has traced nothing".into(), remedy: remedy.into() }
}
