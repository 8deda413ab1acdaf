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

/// Asks for the whole file; `None` where the kernel does not tell: before Linux 6.5, for files of huge pages, and in later kernels
/// for files that this user neither owns nor may write to. Of a pipe or a socket nothing is ever cached.
///
/// Costs one system call, some 10 us for 64 MiB and 40 us for 1 GiB in large folios, milliseconds in small ones. No page is touched.
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
    // As the call has it, no length is up to the end.
    look(file, 0, 0)
}

/// The same of `length_bytes` from `offset_bytes` on. Pages that are only partly in the range count whole.
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
        _ => look(file, offset_bytes, length_bytes),
    }
}

fn look(file: BorrowedFd<'_>, offset_bytes: u64, length_bytes: u64) -> Option<Residency> {
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
    fn a_range_is_told_apart_from_the_rest_of_the_file() {
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
