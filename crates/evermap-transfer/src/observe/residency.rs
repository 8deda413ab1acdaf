//! What of a file is in the page cache.

use std::os::fd::BorrowedFd;

use rustix::param::page_size;

use crate::sys::cachestat::cachestat;

/// How much of a file is in the page cache: a hint, as it may have changed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Residency {
    /// Bytes in the page cache, whole pages.
    pub resident_bytes: u64,
    /// Of these, bytes that are not on the disk yet.
    pub dirty_bytes: u64,
}

/// Asks for the whole file; `None` where the kernel does not tell (before Linux 6.5, or for what is no file).
///
/// Costs one system call, some 10 us for 64 MiB and 40 us for 1 GiB.
pub fn residency(file: BorrowedFd<'_>) -> Option<Residency> {
    let stat = cachestat(file, 0, 0).ok()?;
    let page_bytes = page_size() as u64;
    Some(Residency {
        resident_bytes: stat.resident * page_bytes,
        dirty_bytes: (stat.dirty + stat.writeback) * page_bytes,
    })
}
