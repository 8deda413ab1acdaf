//! `cachestat(2)`: counts a file's pages in the page cache without touching them (Linux 6.5).

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

/// System call number, identical on all architectures.
const SYS_CACHESTAT: libc::c_long = 451;

#[repr(C)]
struct Range {
    offset_bytes: u64,
    /// 0 means "to the end of the file".
    length_bytes: u64,
}

/// Counts in system pages.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CacheStat {
    pub(crate) resident: u64,
    pub(crate) dirty: u64,
    pub(crate) writeback: u64,
    pub(crate) evicted: u64,
    pub(crate) recently_evicted: u64,
}

/// Queries a range. Takes about 10 us for 64 MiB cached in large folios. The result can be out of
/// date when the call returns.
pub(crate) fn cachestat(
    file: BorrowedFd<'_>,
    offset_bytes: u64,
    length_bytes: u64,
) -> Result<CacheStat, Errno> {
    let range = Range { offset_bytes, length_bytes };
    let mut stat = CacheStat::default();
    // SAFETY: both structures have the kernel's layout and live through the call; only `stat` is
    // written.
    let result = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut stat, 0u32)
    };
    match result {
        0 => Ok(stat),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::NOSYS)),
    }
}
