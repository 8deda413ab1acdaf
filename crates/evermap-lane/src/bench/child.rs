//! Child processes of a benchmark: this program, started again with a request on stdin.
//!
//! All end with their parent. The kernel kills players and hogs with the thread that started them.
//! A supervisor of a user's command waits for the end of its parent, then kills the command's
//! process group and processes that have left it.

use std::fs::File;
use std::io::{self, BufRead, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, getppid, kill_process, kill_process_group,
    pidfd_open, set_child_subreaper, set_parent_process_death_signal, wait, waitpid,
};
use rustix::time::Timespec;
use serde::{Deserialize, Serialize};

use super::clip::unnamed;
use super::player::{Play, play_until};
use crate::{Error, Policy, Result};

/// Maximum length of a request.
const REQUEST_BYTES_MAX: u64 = 1 << 20;
/// Longest time for killing and reaping processes that a command left behind.
const ADOPTED_WAIT: Duration = Duration::from_secs(2);

/// Way to start this program again.
#[derive(Clone, Debug)]
pub struct Launcher {
    /// Path of the program.
    pub program: PathBuf,
    /// Arguments with which the program only calls [`serve`].
    pub arguments: Vec<String>,
}

/// Request to a child.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Request {
    /// Process number of the parent.
    pub(super) parent: i32,
    pub(super) role: Role,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Role {
    /// Plays, and prints the result as JSON. SIGTERM, SIGINT and SIGHUP end it after the present
    /// frame, with its lane undone.
    Play { policy: Box<Policy>, play: Play, state: Option<PathBuf> },
    /// Computes, and counts its units in the file.
    Compute { counter: PathBuf, slot: u64 },
    /// Writes to an unnamed file, and counts its units in the file.
    Write { folder: PathBuf, counter: PathBuf, slot: u64 },
    /// Runs a user's command until stdin ends.
    Command { line: String },
}

/// Serves the request on stdin. Returns when it is done; hogs never return.
///
/// # Errors
/// Errors of the player; [`Error::InvalidPolicy`] for an invalid request.
pub fn serve() -> Result<()> {
    let mut line = String::new();
    let stdin = io::stdin().lock();
    io::Read::take(stdin, REQUEST_BYTES_MAX).read_line(&mut line).map_err(of_stdio("read"))?;
    let request: Request = serde_json::from_str(&line).map_err(|error| {
        Error::InvalidPolicy(format!("this verb is only for the benchmark itself ({error})"))
    })?;
    if !matches!(request.role, Role::Command { .. }) {
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
    }
    let parent = Pid::from_raw(request.parent);
    if parent.is_none() || getppid() != parent {
        // The parent ended before the death signal was set.
        return Ok(());
    }
    match request.role {
        Role::Play { policy, play: what, state } => {
            let stop = evermap_transfer::cancelled_by_signals();
            let played = play_until(&policy, &what, state.as_deref(), &stop)?;
            let mut out = io::stdout().lock();
            serde_json::to_writer(&mut out, &played)
                .map_err(|error| of_stdio("write")(error.into()))?;
            out.flush().map_err(of_stdio("write"))
        }
        Role::Compute { counter, slot } => compute(&count_at(&counter)?, slot),
        Role::Write { folder, counter, slot } => write(&folder, &count_at(&counter)?, slot),
        Role::Command { line } => supervise(&line, parent),
    }
}

fn of_stdio(operation: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Io { operation, path: "stdin and stdout".into(), source }
}

fn count_at(path: &Path) -> Result<File> {
    let opened = File::options().write(true).open(path);
    opened.map_err(|source| Error::Io { operation: "open the counters", path: path.into(), source })
}

fn count(counter: &File, slot: u64, units: u64) -> Result<()> {
    counter.write_all_at(&units.to_ne_bytes(), slot * 8).map_err(|source| Error::Io {
        operation: "count",
        path: "the benchmark".into(),
        source,
    })
}

/// Computes. A unit is 8 products of 48 x 48 matrices, about half a millisecond.
fn compute(counter: &File, slot: u64) -> Result<()> {
    const SIDE: usize = 48;
    let left: Vec<f64> = (0..SIDE * SIDE).map(|at| at as f64 * 0.5).collect();
    let mut product = vec![0.0; SIDE * SIDE];
    for units in 1.. {
        for _ in 0..8 {
            for row in 0..SIDE {
                for column in 0..SIDE {
                    let terms =
                        (0..SIDE).map(|at| left[row * SIDE + at] * left[at * SIDE + column]);
                    product[row * SIDE + column] = terms.sum();
                }
            }
            std::hint::black_box(&mut product);
        }
        count(counter, slot, units)?;
    }
    Ok(())
}

/// Writes. A unit is a mebibyte. Every 16 units the data are flushed to the disk; the file has 256
/// units and is overwritten.
fn write(folder: &Path, counter: &File, slot: u64) -> Result<()> {
    const UNIT: usize = 1 << 20;
    let failed = |source| Error::Io { operation: "write in", path: folder.into(), source };
    let file = unnamed(folder)?;
    let unit = vec![0x5a; UNIT];
    for units in 1.. {
        file.write_all_at(&unit, units % 256 * UNIT as u64).map_err(failed)?;
        if units % 16 == 0 {
            file.sync_data().map_err(failed)?;
        }
        count(counter, slot, units)?;
    }
    Ok(())
}

/// Runs the command in a new process group until it or the parent ends.
fn supervise(line: &str, parent: Option<Pid>) -> Result<()> {
    let failed = |source| Error::Io { operation: "start", path: line.into(), source };
    // This process adopts daemons, which leave the group, when their parents end.
    let _ = set_child_subreaper(Some(getpid()));
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line]).stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
    let mut child = command.spawn().map_err(failed)?;
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let waited = match (parent, group) {
        (Some(parent), Some(group)) => wait_for_an_end(parent, group),
        _ => Err(Errno::SRCH),
    };
    if let Some(group) = group {
        // The shell has not been reaped yet, so its number cannot be reused.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
    end_adopted();
    waited.map_err(|error| failed(error.into()))
}

/// Waits for the end of the shell, the parent, or stdin.
fn wait_for_an_end(parent: Pid, shell: Pid) -> rustix::io::Result<()> {
    let parent_end = pidfd_open(parent, PidfdFlags::empty())?;
    let shell_end = pidfd_open(shell, PidfdFlags::empty())?;
    let stdin = io::stdin();
    let often = Timespec { tv_sec: 1, tv_nsec: 0 };
    loop {
        let mut ends = [
            PollFd::new(&parent_end, PollFlags::IN),
            PollFd::new(&shell_end, PollFlags::IN),
            PollFd::new(&stdin, PollFlags::IN),
        ];
        match poll(&mut ends, Some(&often)) {
            Ok(0) | Err(Errno::INTR) => {}
            other => return other.map(|_| ()),
        }
        // Reaps adopted processes that ended by themselves. The shell is not reaped here, so that
        // its number stays valid.
        for process in own_children().into_iter().filter(|process| *process != shell) {
            let _ = waitpid(Some(process), WaitOptions::NOHANG);
        }
    }
}

/// Kills adopted processes, then their orphans, until none is left.
fn end_adopted() {
    let until = Instant::now() + ADOPTED_WAIT;
    while Instant::now() < until {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => {
                for process in own_children() {
                    // The process has not been reaped yet, so its number cannot be reused.
                    let _ = kill_process(process, Signal::KILL);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            // No children are left.
            Err(_) => return,
        }
    }
}

/// Children of all threads of this process, since adopted processes may belong to any.
fn own_children() -> Vec<Pid> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let texts = threads.map(|thread| std::fs::read_to_string(thread.path().join("children")));
    let pids = |text: String| -> Vec<Pid> {
        let numbers = text.split_ascii_whitespace().filter_map(|word| word.parse().ok());
        numbers.filter_map(Pid::from_raw).collect()
    };
    texts.flatten().flat_map(pids).collect()
}
