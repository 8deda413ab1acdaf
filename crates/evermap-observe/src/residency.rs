//! Residency of a file in the page cache.

use std::os::fd::BorrowedFd;

use rustix::param::page_size;

use crate::sys::cachestat::cachestat;

/// Cached and dirty bytes of a file. A hint that can be out of date at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Residency {
    /// Bytes in the page cache, in whole pages.
    pub resident_bytes: u64,
    /// Cached bytes not yet written to disk.
    pub dirty_bytes: u64,
}

/// Queries a whole file. Returns `None` before Linux 6.5, for files of huge pages, and, in later
/// kernels, for files that the user neither owns nor may write to. Pipes and sockets are never
/// cached.
///
/// Costs one system call: about 10 us for 64 MiB and 40 us for 1 GiB in large folios, milliseconds
/// in small ones. Touches no page.
///
/// ```
/// use std::os::{fd::AsFd, unix::fs::FileExt};
/// let file = tempfile::tempfile()?;
/// file.write_all_at(b"map", 0)?;
/// if let Some(found) = evermap_observe::residency(file.as_fd()) {
///     println!("{} bytes cached, {} of them not on the disk", found.resident_bytes, found.dirty_bytes);
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn residency(file: BorrowedFd<'_>) -> Option<Residency> {
    // A length of 0 means "to the end of the file" to the kernel.
    query(file, 0, 0)
}

/// Like [`residency`], for `length_bytes` from `offset_bytes` on. Pages that are partly in the
/// range count in full.
///
/// ```
/// use std::os::{fd::AsFd, unix::fs::FileExt};
/// let file = tempfile::tempfile()?;
/// file.write_all_at(b"map", 1 << 20)?;
/// if let Some(hole) = evermap_observe::residency_of(file.as_fd(), 0, 1 << 20) {
///     assert_eq!(hole.resident_bytes, 0);
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn residency_of(
    file: BorrowedFd<'_>,
    offset_bytes: u64,
    length_bytes: u64,
) -> Option<Residency> {
    match length_bytes {
        0 => Some(Residency { resident_bytes: 0, dirty_bytes: 0 }),
        _ => query(file, offset_bytes, length_bytes),
    }
}

fn query(file: BorrowedFd<'_>, offset_bytes: u64, length_bytes: u64) -> Option<Residency> {
    let stat = cachestat(file, offset_bytes, length_bytes).ok()?;
    let page_bytes = page_size() as u64;
    Some(Residency {
        resident_bytes: stat.resident * page_bytes,
        dirty_bytes: (stat.dirty + stat.writeback) * page_bytes,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    #[test]
    fn residency_of_counts_only_the_range() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4 << 20).unwrap();
        file.write_all_at(&[1; 1 << 20], 1 << 20).unwrap();
        let Some(whole) = residency(file.as_fd()) else { return };
        let of = |offset, length| residency_of(file.as_fd(), offset, length).unwrap();
        assert_eq!(of(1 << 20, 1 << 20).resident_bytes, 1 << 20);
        assert_eq!(of(2 << 20, 2 << 20).resident_bytes, 0);
        assert_eq!(of(0, 4 << 20), whole);
        assert_eq!(of(1 << 20, 0).resident_bytes, 0);
    }
}
