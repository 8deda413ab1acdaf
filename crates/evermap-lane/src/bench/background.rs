//! Background load of a player: hogs of processor and disk that count their work, or a user's
//! command.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::child::{Launcher, Request, Role};
use crate::{Error, Result};

/// Maximum number of hogs of each kind.
const HOGS_MAX: usize = 1_024;
/// Longest wait for a child that has to end others or to undo its lane.
const END_WAIT: Duration = Duration::from_secs(5);

/// Background load of a player.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Number of processes that compute.
    pub hogs: usize,
    /// Number of processes that write.
    pub writers: usize,
    /// Shell command. Its work is not counted.
    pub command: Option<String>,
}

/// Work done by the hogs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Units {
    /// Units of computing.
    pub computed: f64,
    /// Mebibytes written.
    pub written: f64,
}

/// Load that runs until this is dropped.
pub(super) struct Background {
    children: Vec<ChildGuard>,
    counters: File,
    load: Load,
}

impl Background {
    pub(super) fn start(launcher: &Launcher, load: &Load, folder: &Path) -> Result<Self> {
        if load.hogs.max(load.writers) > HOGS_MAX {
            return Err(Error::InvalidPolicy(format!(
                "at most {HOGS_MAX} hogs and {HOGS_MAX} writers are allowed"
            )));
        }
        let failed = |error: rustix::io::Errno| Error::Io {
            operation: "allocate memory for",
            path: "the counters".into(),
            source: error.into(),
        };
        let counters: File =
            memfd_create("evermap-lane-units", MemfdFlags::CLOEXEC).map_err(failed)?.into();
        ftruncate(&counters, 8 * (load.hogs + load.writers) as u64).map_err(failed)?;
        let counter = own_path(&counters);
        let mut background = Self { children: Vec::new(), counters, load: load.clone() };
        for slot in 0..load.hogs as u64 {
            let role = Role::Compute { counter: counter.clone(), slot };
            background.children.push(ChildGuard::start(launcher, role)?);
        }
        for slot in load.hogs as u64..(load.hogs + load.writers) as u64 {
            let role = Role::Write { folder: folder.into(), counter: counter.clone(), slot };
            background.children.push(ChildGuard::start(launcher, role)?);
        }
        if let Some(line) = &load.command {
            let role = Role::Command { line: line.clone() };
            background.children.push(ChildGuard::start(launcher, role)?);
        }
        Ok(background)
    }

    /// Work done since the start.
    pub(super) fn units(&self) -> Units {
        let mut bytes = vec![0; 8 * (self.load.hogs + self.load.writers)];
        let _ = self.counters.read_exact_at(&mut bytes, 0);
        let counts: Vec<f64> = bytes
            .chunks_exact(8)
            .map(|word| word.try_into().map_or(0, u64::from_ne_bytes) as f64)
            .collect();
        let (computed, written) = counts.split_at(self.load.hogs);
        Units { computed: computed.iter().sum(), written: written.iter().sum() }
    }

    /// Fails if a process of the load has ended, which none does by itself.
    pub(super) fn verify(&mut self) -> Result<()> {
        for child in &mut self.children {
            if let Ok(Some(status)) = child.child.try_wait() {
                let what = format!("of the load ended early ({status})");
                return Err(Error::Child { what });
            }
        }
        Ok(())
    }
}

/// Path by which another process of this user can open an open file of this one.
pub(super) fn own_path(file: &File) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into()
}

/// Child that ends when this is dropped.
pub(super) struct ChildGuard {
    pub(super) child: Child,
    end_by: EndBy,
}

/// Way to end a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndBy {
    /// By closing its stdin; it ends other processes first.
    Stdin,
    /// By a signal; it undoes its lane first.
    Signal,
    /// By killing it; it leaves nothing behind.
    Kill,
}

impl ChildGuard {
    pub(super) fn start(launcher: &Launcher, role: Role) -> Result<Self> {
        let end_by = match role {
            Role::Command { .. } => EndBy::Stdin,
            Role::Play { .. } => EndBy::Signal,
            Role::Compute { .. } | Role::Write { .. } => EndBy::Kill,
        };
        let failed =
            |source| Error::Io { operation: "start", path: launcher.program.clone(), source };
        let mut command = Command::new(&launcher.program);
        command.args(&launcher.arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        if end_by == EndBy::Stdin {
            // A separate group: Ctrl-C must not end the child before this process.
            command.process_group(0);
        }
        let child = command.spawn().map_err(failed)?;
        let mut guard = Self { child, end_by };
        let parent = std::process::id() as i32;
        let request = serde_json::to_string(&Request { parent, role })
            .map_err(|error| failed(error.into()))?;
        let mut stdin = guard.child.stdin.take();
        if let Some(stdin) = &mut stdin {
            stdin.write_all(request.as_bytes()).map_err(failed)?;
            stdin.write_all(b"\n").map_err(failed)?;
        }
        // The stdin of a supervisor stays open.
        guard.child.stdin = stdin.filter(|_| end_by == EndBy::Stdin);
        Ok(guard)
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks the child to end. Returns false if it cannot be asked.
    fn ask_to_end(&mut self) -> bool {
        match self.end_by {
            EndBy::Stdin => {
                self.child.stdin = None;
                true
            }
            // The child has not been reaped yet, so its number cannot be reused.
            EndBy::Signal => kill_process(Pid::from_child(&self.child), Signal::TERM).is_ok(),
            EndBy::Kill => false,
        }
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        if self.has_ended() {
            return;
        }
        if self.ask_to_end() {
            let until = Instant::now() + END_WAIT;
            while Instant::now() < until {
                if self.has_ended() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
