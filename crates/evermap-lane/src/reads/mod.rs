//! The ways in which a file's bytes come to a frame: `map`, `nowait`, `uring`, `blocking`, behind one trait.
//!
//! A reader belongs to the thread that reads. What it lends is the file's contents as they were when the file was opened, in memory that is there; where the
//! file was cut or written to since, it is an error, never other bytes, as far as length and time of change tell. What of a way could not be had is a note,
//! never silence. Nothing is allocated while reading, but for reads that are longer than all before.

mod ahead;
mod blocking;
mod budget;
mod buffer;
mod lease;
mod limit;
mod map;
mod nowait;
mod subject;
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

/// A file, by one of the ways.
pub(crate) trait Reader: Send {
    /// `length` bytes from `offset` on; fewer at the end, none behind it. They are lent until the next read.
    fn read(&mut self, offset: u64, length: usize) -> Result<(&[u8], Served)>;

    /// Bytes of the file, when it was opened.
    fn length_bytes(&self) -> u64;

    /// What of the way could not be had, as far as it was not told before.
    fn notes(&mut self) -> Vec<Note>;
}

/// How a read was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Served {
    /// From the mapping of the tier's copy.
    Mapped,
    /// From memory that the helper filled.
    Ahead,
    /// The helper was late, and the page cache had it.
    Cached,
    /// The helper was late, and the disk was waited for.
    Waited,
    /// From a ring, while its completion was looked for.
    Polled,
    /// From a ring, after sleeping.
    Slept,
    /// By `pread`.
    Blocked,
}

/// Reads by how they were served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Reads {
    /// From the mapping of the tier's copy.
    pub mapped: u64,
    /// From memory that the helper filled.
    pub ahead: u64,
    /// From the page cache, with `RWF_NOWAIT`, as the helper was late.
    pub cached: u64,
    /// By `pread`, as the helper was late and the page cache had not all of it.
    pub waited: u64,
    /// From a ring, whose completion was seen while it was looked for.
    pub polled: u64,
    /// From a ring, after the thread had slept.
    pub slept: u64,
    /// By `pread`.
    pub blocked: u64,
    /// Bytes of all of them.
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

    /// Each way that served any, by its name.
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

/// Something that was wished for and could not be had, and what there is instead.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Note {
    /// What was wished for.
    pub what: String,
    /// Why it could not be had, what there is instead, and what would help.
    pub why: String,
}

impl Note {
    pub(crate) fn new(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self { what: what.into(), why: why.into() }
    }
}

/// How files are to be read.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub(crate) mode: IoMode,
    /// `nowait`: so far ahead.
    pub(crate) ahead: Duration,
    /// `uring`: looked for completions for so long.
    pub(crate) spin: Duration,
    pub(crate) lock: Lock,
    /// `map`: the directory of the tier; memory, without one.
    pub(crate) tier: Option<PathBuf>,
    /// `map`: no more than this is put there.
    pub(crate) budget: Budget,
    /// `map`: for experiments, every 4 KiB take so much longer.
    pub(crate) inject_ns_per_4k: u64,
    /// `blocking`: past the page cache, for experiments.
    pub(crate) is_direct: bool,
    /// The program begins again at the end.
    pub(crate) is_looping: bool,
    /// Bytes that it reads at a time, as far as that is known.
    pub(crate) read_bytes: Option<usize>,
    /// Time from one read to the next, likewise.
    pub(crate) period: Option<Duration>,
    pub(crate) helper: Helper,
}

/// Where and how a helper runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Helper {
    pub(crate) aside: Aside,
    /// Before ordinary programs, if it may.
    pub(crate) is_real_time: bool,
}

/// Where threads of a lane are that are not on its core.
#[derive(Clone, Debug, Default)]
pub(crate) struct Aside {
    /// The group of those, where one keeps them off the core: threads begin in that of who started them.
    pub(crate) tasks: Option<PathBuf>,
    /// The cores they may be on; where they like, if there is nothing to avoid.
    pub(crate) cores: Option<BTreeSet<u32>>,
}

impl Aside {
    /// Has this thread there, as far as that may be: what may not is no reason not to do its work.
    pub(crate) fn go(&self) {
        if let Some(tasks) = &self.tasks {
            let own = rustix::thread::gettid().as_raw_nonzero().to_string();
            let _ = std::fs::write(tasks, own);
        }
        if let Some(cores) = &self.cores {
            let _ = scheduler::set_affinity(Thread::CURRENT, cores);
        }
    }
}

/// Opens it. Waits for the disk: not for use within a frame.
pub(crate) fn open(path: &Path, way: &Way) -> Result<Box<dyn Reader>> {
    Ok(match way.mode {
        IoMode::Map => Box::new(map::Mapped::open(path, way)?),
        IoMode::Nowait => Box::new(nowait::Nowait::open(path, way)?),
        IoMode::Uring => Box::new(uring::Uring::open(path, way)?),
        IoMode::Blocking => Box::new(blocking::Blocking::open(path, way)?),
    })
}

#[cfg(test)]
mod tests;
