//! The processes of a benchmark: this program, started again with a request on its stdin.
//!
//! None outlives whoever started it: players and hogs are killed by the kernel with the thread that started them, and who supervises somebody else's command waits for
//! its starter's end and kills the command's process group, and what has left that.

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

use super::clip::nameless;
use super::player::{Play, play_until};
use crate::{Error, Policy, Result};

/// The longest request that is read.
const REQUEST_BYTES_MAX: u64 = 1 << 20;
/// How long what a command left behind is killed and waited for.
const ADOPTED_WAIT: Duration = Duration::from_secs(2);

/// How this program is started again.
#[derive(Clone, Debug)]
pub struct Launcher {
    /// The program.
    pub program: PathBuf,
    /// Its arguments, with which it calls [`serve`] and nothing else.
    pub arguments: Vec<String>,
}

/// What a child is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Request {
    /// Whose child it is.
    pub(super) parent: i32,
    pub(super) role: Role,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Role {
    /// Plays, and says how it went as JSON. SIGTERM, SIGINT and SIGHUP end it with the frame that it is at, and with its lane set back.
    Play { policy: Box<Policy>, play: Play, state: Option<PathBuf> },
    /// Computes, and counts there.
    Compute { counter: PathBuf, slot: u64 },
    /// Writes to a file without a name, and counts there.
    Write { folder: PathBuf, counter: PathBuf, slot: u64 },
    /// Runs somebody's command until its stdin ends.
    Command { line: String },
}

/// Does what stdin asks for. Returns when that is done; hogs never return.
///
/// # Errors
/// Those of the player; [`Error::Unusable`] for a request that is none.
pub fn serve() -> Result<()> {
    let mut line = String::new();
    let stdin = io::stdin().lock();
    io::Read::take(stdin, REQUEST_BYTES_MAX).read_line(&mut line).map_err(of_stdio("read"))?;
    let request: Request = serde_json::from_str(&line)
        .map_err(|error| Error::Unusable(format!("this is for the benchmark itself ({error})")))?;
    if !matches!(request.role, Role::Command { .. }) {
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
    }
    let parent = Pid::from_raw(request.parent);
    if parent.is_none() || getppid() != parent {
        // It ended before it could be noticed.
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

/// A unit is 8 products of matrices of 48 x 48: half a millisecond or so.
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

/// A unit is a mebibyte. What is written reaches the disk every 16; the file has 256, and is written over.
fn write(folder: &Path, counter: &File, slot: u64) -> Result<()> {
    const UNIT: usize = 1 << 20;
    let failed = |source| Error::Io { operation: "write in", path: folder.into(), source };
    let file = nameless(folder)?;
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

/// Runs the command in a process group of its own until it ends, or whoever wanted it does.
fn supervise(line: &str, parent: Option<Pid>) -> Result<()> {
    let failed = |source| Error::Io { operation: "start", path: line.into(), source };
    // Daemons leave the group; they come to this process when their parents end.
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
        // The shell is not waited for yet, so its number is nobody else's.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
    end_adopted();
    waited.map_err(|error| failed(error.into()))
}

/// Returns when the shell ends, or whoever wanted it, or stdin.
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
        // Those that came to this process, and ended by themselves. The shell's end is not taken: its number has to stay its own.
        for process in own_children().into_iter().filter(|process| *process != shell) {
            let _ = waitpid(Some(process), WaitOptions::NOHANG);
        }
    }
}

/// Ends what came to this process. What those had started comes next, until there is nothing.
fn end_adopted() {
    let until = Instant::now() + ADOPTED_WAIT;
    while Instant::now() < until {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => {
                for process in own_children() {
                    // Not waited for yet, so the number is nobody else's.
                    let _ = kill_process(process, Signal::KILL);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            // There is none.
            Err(_) => return,
        }
    }
}

/// Of all threads of this process: what is adopted is any one's.
fn own_children() -> Vec<Pid> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let texts = threads.map(|thread| std::fs::read_to_string(thread.path().join("children")));
    let pids = |text: String| -> Vec<Pid> {
        let numbers = text.split_ascii_whitespace().filter_map(|word| word.parse().ok());
        numbers.filter_map(Pid::from_raw).collect()
    };
    texts.flatten().flat_map(pids).collect()
}
