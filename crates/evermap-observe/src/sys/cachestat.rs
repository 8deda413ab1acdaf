//! `cachestat(2)`: how much of a file is in the page cache, without touching it (Linux 6.5).

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

/// The call's number, one on all architectures.
const SYS_CACHESTAT: libc::c_long = 451;

#[repr(C)]
struct Range {
    offset_bytes: u64,
    /// 0 is all up to the end.
    length_bytes: u64,
}

/// In pages of this system.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CacheStat {
    pub(crate) resident: u64,
    pub(crate) dirty: u64,
    pub(crate) writeback: u64,
    pub(crate) evicted: u64,
    pub(crate) recently_evicted: u64,
}

/// Looks at a range. Takes some 10 us for 64 MiB that are cached in large folios; what it says may be over when it returns.
pub(crate) fn cachestat(
    file: BorrowedFd<'_>,
    offset_bytes: u64,
    length_bytes: u64,
) -> Result<CacheStat, Errno> {
    let range = Range { offset_bytes, length_bytes };
    let mut stat = CacheStat::default();
    // SAFETY: both structures are laid out as the kernel's, live through the call, and only `stat` is written.
    let result = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut stat, 0u32)
    };
    match result {
        0 => Ok(stat),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::NOSYS)),
    }
}
