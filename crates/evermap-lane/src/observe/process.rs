//! A process as `/proc` has it: who it is, its threads, what they have used. Everything may be gone at any moment.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::machine::roots::text;
use crate::{Error, Result};

/// The kernel's own threads (`PF_KTHREAD`, include/linux/sched.h).
const KERNEL_THREAD: u64 = 0x0020_0000;

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
    /// When it started: another process may get its number.
    start_ticks: u64,
}

impl Identity {
    pub(super) fn open(process: u32) -> Result<Self> {
        let refused = |why| Err(Error::Unobservable { process, why });
        let Some(stat) = Stat::read(&directory(process)).filter(|_| process > 0) else {
            return Err(Error::NoProcess { process });
        };
        let group = status_of(process, "Tgid:").unwrap_or(u64::from(process));
        if group != u64::from(process) {
            return refused(Unobservable::ThreadOf { process: u32::try_from(group).unwrap_or(0) });
        }
        if stat.flags & KERNEL_THREAD != 0 {
            return refused(Unobservable::KernelThread);
        }
        if stat.has_ended() {
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
        Ok(Identity { process, program, start_ticks: stat.start_ticks })
    }

    /// Whether it still runs, and is the one that it was.
    pub(super) fn is_there(&self) -> bool {
        Stat::read(&directory(self.process))
            .is_some_and(|stat| !stat.has_ended() && stat.start_ticks == self.start_ticks)
    }
}

pub(super) fn directory(process: u32) -> PathBuf {
    Path::new("/proc").join(process.to_string())
}

pub(super) fn directory_of_thread(process: u32, thread: u32) -> PathBuf {
    directory(process).join("task").join(thread.to_string())
}

/// The threads that there are now.
pub(super) fn threads(process: u32) -> Vec<u32> {
    let entries = fs::read_dir(directory(process).join("task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

pub(super) fn name(process: u32, thread: u32) -> Option<String> {
    Stat::read(&directory_of_thread(process, thread)).map(|stat| stat.name)
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
        let stat = Stat::read(&directory)?;
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

/// `/proc/PID/stat`, as far as it is needed.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    name: String,
    state: char,
    flags: u64,
    minor_faults: u64,
    major_faults: u64,
    processor_ticks: u64,
    start_ticks: u64,
}

impl Stat {
    fn read(directory: &Path) -> Option<Self> {
        Self::parse(&text(&directory.join("stat")).ok()?)
    }

    /// `1 (name) S 0 ...`: the name may have blanks and brackets itself, so the last bracket ends it.
    fn parse(line: &str) -> Option<Self> {
        let (_, rest) = line.split_once('(')?;
        let (name, rest) = rest.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // By the numbers that proc_pid_stat(5) gives them: the state is the third.
        let number = |field: usize| -> Option<u64> { fields.get(field - 3)?.parse().ok() };
        Some(Stat {
            name: name.to_owned(),
            state: fields.first()?.chars().next()?,
            flags: number(9)?,
            minor_faults: number(10)?,
            major_faults: number(12)?,
            processor_ticks: number(14)?.saturating_add(number(15)?),
            start_ticks: number(22)?,
        })
    }

    fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_have_brackets_and_blanks() {
        let line =
            "42 (a) b (c) S 1 42 42 0 -1 4194560 11 22 33 44 55 66 77 88 20 0 1 0 999 1 2 3\n";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.name.as_str(), stat.state), ("a) b (c", 'S'));
        assert_eq!((stat.flags, stat.minor_faults, stat.major_faults), (4_194_560, 11, 33));
        assert_eq!((stat.processor_ticks, stat.start_ticks), (55 + 66, 999));
        for text in ["", "42", "42 (a", "42 (a) S 1", "42 (a) "] {
            assert_eq!(Stat::parse(text), None, "{text}");
        }
    }
}
