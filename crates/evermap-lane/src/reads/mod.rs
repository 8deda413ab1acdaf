//! I/O modes that bring a file's bytes to a frame: `map`, `nowait`, `uring`, `blocking`, behind one
//! trait.
//!
//! A reader belongs to the thread that reads. It returns the file's contents as they were at
//! opening, in memory. After a truncation or a write it fails instead of returning other bytes, as
//! far as length and time of change show that. Parts of a mode that are not available become notes.
//! Reading allocates only for reads longer than all before.

mod ahead;
mod blocking;
mod budget;
mod buffer;
mod lease;
mod limit;
mod map;
mod nowait;
mod source_file;
mod uring;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) use budget::Budget;
pub(crate) use limit::{locked_bytes, locked_room_bytes};

use crate::sys::memory::Lock;
use crate::sys::scheduler::{self, Thread};
use crate::{IoMode, Result};

/// File opened in one of the modes.
pub(crate) trait Reader: Send {
    /// Reads `length` bytes at `offset`; fewer at the end, none after it. The slice is valid until
    /// the next read.
    fn read(&mut self, offset: u64, length: usize) -> Result<(&[u8], Served)>;

    /// Length of the file at opening, in bytes.
    fn length_bytes(&self) -> u64;

    /// Takes the notes made since the last call.
    fn notes(&mut self) -> Vec<Note>;
}

/// Source of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Served {
    /// Mapping of the copy on the tier.
    Mapped,
    /// Memory that the helper had filled.
    Ahead,
    /// Page cache, because the helper was late.
    Cached,
    /// Disk, because the helper was late.
    Waited,
    /// Ring, with the completion seen while polling.
    Polled,
    /// Ring, with the completion seen after sleeping.
    Slept,
    /// `pread`.
    Blocked,
}

/// Number of reads by their source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Reads {
    /// Mapping of the copy on the tier.
    pub mapped: u64,
    /// Memory that the helper had filled.
    pub ahead: u64,
    /// Page cache, with `RWF_NOWAIT`, because the helper was late.
    pub cached: u64,
    /// `pread`, because the helper was late and the page cache did not have all of it.
    pub waited: u64,
    /// Ring, with the completion seen while polling.
    pub polled: u64,
    /// Ring, with the completion seen after the thread had slept.
    pub slept: u64,
    /// `pread`.
    pub blocked: u64,
    /// Bytes of all reads.
    pub bytes: u64,
}

impl Reads {
    pub(crate) fn count(&mut self, served: Served, bytes: usize) {
        let count = match served {
            Served::Mapped => &mut self.mapped,
            Served::Ahead => &mut self.ahead,
            Served::Cached => &mut self.cached,
            Served::Waited => &mut self.waited,
            Served::Polled => &mut self.polled,
            Served::Slept => &mut self.slept,
            Served::Blocked => &mut self.blocked,
        };
        *count += 1;
        self.bytes += bytes as u64;
    }

    pub(crate) fn add(&mut self, more: Reads) {
        self.mapped += more.mapped;
        self.ahead += more.ahead;
        self.cached += more.cached;
        self.waited += more.waited;
        self.polled += more.polled;
        self.slept += more.slept;
        self.blocked += more.blocked;
        self.bytes += more.bytes;
    }

    /// Names and counts of the sources that served any reads.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        [
            ("mapped", self.mapped),
            ("ahead", self.ahead),
            ("cached", self.cached),
            ("waited", self.waited),
            ("polled", self.polled),
            ("slept", self.slept),
            ("blocked", self.blocked),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
    }
}

/// Part of a policy that could not be applied.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Note {
    /// Part that was wanted.
    pub what: String,
    /// Cause, substitute and remedy.
    pub why: String,
}

impl Note {
    pub(crate) fn new(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self { what: what.into(), why: why.into() }
    }
}

/// Settings for reading files.
#[derive(Clone, Debug)]
pub(crate) struct ReadOptions {
    pub(crate) mode: IoMode,
    /// `nowait`: read-ahead distance.
    pub(crate) ahead: Duration,
    /// `uring`: polling time.
    pub(crate) spin: Duration,
    pub(crate) lock: Lock,
    /// `map`: directory of the tier. `None` is memory.
    pub(crate) tier: Option<PathBuf>,
    /// `map`: budget of bytes on the tier.
    pub(crate) budget: Budget,
    /// `map`: additional latency of each 4 KiB, for experiments.
    pub(crate) inject_ns_per_4k: u64,
    /// `blocking`: direct reads, for experiments.
    pub(crate) is_direct: bool,
    /// Reads continue at the beginning after the end.
    pub(crate) is_looping: bool,
    /// Bytes of each read, if known.
    pub(crate) read_bytes: Option<usize>,
    /// Time from one read to the next, if known.
    pub(crate) period: Option<Duration>,
    pub(crate) helper: HelperOptions,
}

/// Placement and priority of a helper thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct HelperOptions {
    pub(crate) placement: HelperPlacement,
    /// Runs before ordinary programs, if it may.
    pub(crate) is_real_time: bool,
}

/// Placement of a lane's threads that stay off its core.
#[derive(Clone, Debug, Default)]
pub(crate) struct HelperPlacement {
    /// Task list of the group to move to, if a group holds the core. A new thread begins in the
    /// group of the thread that started it.
    pub(crate) tasks: Option<PathBuf>,
    /// Cores to use. `None` allows all.
    pub(crate) cores: Option<BTreeSet<u32>>,
}

impl HelperPlacement {
    /// Moves the calling thread there. Ignores failures, since the thread can work anywhere.
    pub(crate) fn apply(&self) {
        if let Some(tasks) = &self.tasks {
            let own = rustix::thread::gettid().as_raw_nonzero().to_string();
            let _ = std::fs::write(tasks, own);
        }
        if let Some(cores) = &self.cores {
            let _ = scheduler::set_affinity(Thread::CURRENT, cores);
        }
    }
}

/// Opens a file. Waits for the disk, so call it outside of frames.
pub(crate) fn open(path: &Path, options: &ReadOptions) -> Result<Box<dyn Reader>> {
    Ok(match options.mode {
        IoMode::Map => Box::new(map::Mapped::open(path, options)?),
        IoMode::Nowait => Box::new(nowait::Nowait::open(path, options)?),
        IoMode::Uring => Box::new(uring::Uring::open(path, options)?),
        IoMode::Blocking => Box::new(blocking::Blocking::open(path, options)?),
    })
}

#[cfg(test)]
mod tests;
