//! Alignment that direct I/O (past the page cache) requires of buffers and offsets.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Statx, StatxFlags, statx};

/// Alignment required for direct I/O, in bytes, as reported by `statx` (Linux 6.1). Both values are
/// powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct DirectAlignment {
    /// Alignment of buffers in memory.
    pub memory_bytes: u32,
    /// Alignment of offsets and lengths in the file.
    pub offset_bytes: u32,
}

impl DirectAlignment {
    /// Returns the alignment from a `statx` result queried with `StatxFlags::DIOALIGN`. Saves the
    /// system call of [`direct_alignment`].
    pub fn of(stat: &Statx) -> Option<DirectAlignment> {
        let known = stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
        (known && stat.stx_dio_offset_align > 0).then_some(DirectAlignment {
            memory_bytes: stat.stx_dio_mem_align,
            offset_bytes: stat.stx_dio_offset_align,
        })
    }
}

/// Returns the alignment for a file, or `None` if its file system does not support direct I/O or
/// does not report it. Costs one system call.
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
