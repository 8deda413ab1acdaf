//! The object that an engine commits to: its files, its mapped memory, and what a commit adds to
//! them.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use super::log::Log;
use super::overlay::Overlay;
use super::settings::WriteOptions;
use super::unreserved::Unreserved;
use crate::address::Mapping;
use crate::format::RegionRecord;
use crate::storage::{File, Storage};

/// File that an object's memory is mapped from. Locked while mappings change to another file, or to
/// another kind, so a fork on another thread sees either the old or the new state.
pub(crate) type MappedFile = Arc<Mutex<Arc<dyn File>>>;

/// A contiguous part of the file at a contiguous range of addresses.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) address: u64,
    pub(crate) file_offset: u64,
    pub(crate) length: u64,
}

/// Lifetime of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogPolicy {
    /// Created at the first commit. Removed at close, except that a large object keeps a small log
    /// for its next session. Readers can be present.
    WhileOpen,
    /// Kept permanently, so that many short sessions pay for it only once. The session holds the
    /// content lock and applies each commit at once. Opening the object for writing replays the
    /// log, unless `applied` says that this process has already seen it replayed: there was no
    /// power failure since then, so the applied pages are still in the page cache.
    Permanent { applied: bool },
}

/// The object that an [`Engine`](super::Engine) commits to.
pub(crate) struct Target {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) object_uuid: [u8; 16],
    pub(crate) log_path: PathBuf,
    pub(crate) policy: LogPolicy,
    pub(crate) settings: WriteOptions,
    /// Existing log.
    pub(crate) log: Option<Log>,
    /// Lines that are in the log and not in the file.
    pub(crate) overlay: Overlay,
    /// Lines of the log that another process applied and this session did not flush.
    pub(crate) applied_elsewhere: Overlay,
    pub(crate) mapped: MappedFile,
    /// Parts mapped private; the first span begins with page 0 of the file.
    pub(crate) committed: Vec<Span>,
    pub(crate) regions: Vec<RegionRecord>,
    pub(crate) file_length: u64,
    /// Writer of the mapped memory.
    pub(crate) writer_kind: WriterKind,
    /// Number of the commit that the file and the log hold.
    pub(crate) sequence: u64,
}

/// Kind of code that may store into the mapped memory during a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriterKind {
    /// This process's own code, which the caller of `commit` has stopped, as Rust's borrows ensure.
    /// Pages are read in place.
    Host,
    /// A guest's threads, which may go on storing. Each page is copied once, and only the copy is
    /// used, so the logged bytes always match their checksum.
    Guest,
}

/// Content of a commit besides the changed pages of the committed spans.
pub(crate) struct Growth {
    /// Ranges mapped shared since the last commit.
    pub(crate) fresh: Vec<Span>,
    /// Current bytes of the file.
    pub(crate) file_length: u64,
    /// The regions after the commit.
    pub(crate) regions: Vec<RegionRecord>,
    /// Pages of the file whose contents are unspecified from now on: first page number and page
    /// count.
    pub(crate) given_back: Vec<(u64, u64)>,
    /// Parts of the file without disk space.
    pub(crate) unreserved: Arc<Unreserved>,
}
