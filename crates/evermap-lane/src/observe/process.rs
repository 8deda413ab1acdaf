//! A process as `/proc` has it: who it is, its threads, what they have used. Everything may be gone at any moment.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::machine::roots::text;
use crate::process::{Process, Stat};
use crate::{Error, Result};

/// Why a process cannot be observed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unobservable {
    /// It belongs to the kernel.
    #[error("it is a thread of the kernel, which no lane is for; name a program's process")]
    KernelThread,
    /// It has ended.
    #[error("it has ended, and only waits for its parent to notice; name one that runs")]
    Zombie,
    /// The number is that of a thread.
    #[error("it is a thread of process {process}: name that one")]
    ThreadOf {
        /// The process.
        process: u32,
    },
    /// It is another user's.
    #[error(
        "it belongs to user {owner}, and its files may not be looked at; observe it as root, or as that user (a program with capabilities: as root)"
    )]
    NotPermitted {
        /// Whose it is.
        owner: u32,
    },
    /// It ended before anything could be said.
    #[error(
        "it ended after {after_ms} ms, before a hundred wake-ups of a thread were seen; observe it while it runs"
    )]
    Ended {
        /// How long it was observed.
        after_ms: u128,
    },
}

/// A process that can be observed.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) process: u32,
    /// Its executable, or its name where that is not told.
    pub(super) program: String,
    running: Process,
}

impl Identity {
    pub(super) fn open(process: u32) -> Result<Self> {
        let refused = |why| Err(Error::Unobservable { process, why });
        let Some(stat) = Stat::of(process) else {
            return Err(Error::NoProcess { process });
        };
        let group = status_of(process, "Tgid:").unwrap_or(u64::from(process));
        if group != u64::from(process) {
            return refused(Unobservable::ThreadOf { process: u32::try_from(group).unwrap_or(0) });
        }
        if stat.is_of_kernel() {
            return refused(Unobservable::KernelThread);
        }
        if !stat.is_alive() {
            return refused(Unobservable::Zombie);
        }
        match fs::read_dir(directory(process).join("fd")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::NoProcess { process });
            }
            Err(_) => {
                let owner = fs::metadata(directory(process)).map_or(0, |facts| facts.uid());
                return refused(Unobservable::NotPermitted { owner });
            }
            Ok(_) => {}
        }
        let program = fs::read_link(directory(process).join("exe"));
        let program = program.map_or(stat.name, |path| path.to_string_lossy().into_owned());
        let program = program.strip_suffix(" (deleted)").map_or(program.clone(), str::to_owned);
        let running = Process { pid: process, start_ticks: stat.start_ticks };
        Ok(Identity { process, program, running })
    }

    /// Whether it still runs, and is the one that it was.
    pub(super) fn is_there(&self) -> bool {
        self.running.is_alive()
    }
}

pub(super) fn directory(process: u32) -> PathBuf {
    Path::new("/proc").join(process.to_string())
}

pub(super) fn directory_of_thread(process: u32, thread: u32) -> PathBuf {
    directory(process).join("task").join(thread.to_string())
}

/// Memory that is locked.
pub(super) fn locked_bytes(process: u32) -> Option<u64> {
    status_of(process, "VmLck:")?.checked_mul(1 << 10)
}

/// The first number behind this word in the status.
fn status_of(process: u32, word: &str) -> Option<u64> {
    let status = text(&directory(process).join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(word))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// What a process has read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Io {
    pub(super) read_bytes: u64,
    pub(super) from_disks_bytes: u64,
}

pub(super) fn io(process: u32) -> Option<Io> {
    let text = text(&directory(process).join("io")).ok()?;
    let of = |word: &str| -> Option<u64> {
        text.lines().find_map(|line| line.strip_prefix(word))?.trim().parse().ok()
    };
    Some(Io { read_bytes: of("rchar:")?, from_disks_bytes: of("read_bytes:")? })
}

/// What a thread has used since it began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) processor_ns: u64,
    pub(super) run_queue_ns: u64,
    pub(super) minor_faults: u64,
    pub(super) major_faults: u64,
}

impl Counters {
    pub(super) fn read(process: u32, thread: u32) -> Option<Self> {
        let directory = directory_of_thread(process, thread);
        let stat = Stat::of_thread(process, thread)?;
        // Without it, ticks have to do, and nothing tells of the waiting.
        let exact = text(&directory.join("schedstat")).unwrap_or_default();
        let mut exact = exact.split_ascii_whitespace().map(|number| number.parse().ok());
        let ns_per_tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
        Some(Counters {
            processor_ns: exact
                .next()
                .flatten()
                .unwrap_or(stat.processor_ticks.saturating_mul(ns_per_tick)),
            run_queue_ns: exact.next().flatten().unwrap_or(0),
            minor_faults: stat.minor_faults,
            major_faults: stat.major_faults,
        })
    }
}
