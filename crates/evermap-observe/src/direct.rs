//! What direct I/O, which passes the page cache by, asks of offsets and memory.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Statx, StatxFlags, statx};

/// What direct I/O asks of memory and offsets, in bytes, as `statx` says (Linux 6.1). Both are powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct DirectAlignment {
    /// Of buffers in memory.
    pub memory_bytes: u32,
    /// Of offsets and lengths in the file.
    pub offset_bytes: u32,
}

impl DirectAlignment {
    /// Of a file that was looked at already, with `StatxFlags::DIOALIGN` among what was asked: spares [`direct_alignment`]'s call.
    pub fn of(stat: &Statx) -> Option<DirectAlignment> {
        let known = stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
        (known && stat.stx_dio_offset_align > 0).then_some(DirectAlignment {
            memory_bytes: stat.stx_dio_mem_align,
            offset_bytes: stat.stx_dio_offset_align,
        })
    }
}

/// Asks one file; `None` where its file system does no direct I/O, or does not say so. Costs one system call.
///
/// ```
/// use std::os::fd::AsFd;
/// let file = tempfile::tempfile()?;
/// if let Some(asked) = evermap_observe::direct_alignment(file.as_fd()) {
///     assert!(asked.offset_bytes.is_power_of_two());
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn direct_alignment(file: BorrowedFd<'_>) -> Option<DirectAlignment> {
    let stat = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    DirectAlignment::of(&stat)
}
