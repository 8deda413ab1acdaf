//! `FICLONERANGE`: shares a range of extents between two files.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;
use rustix::ioctl::{Setter, ioctl, opcode};

/// `struct file_clone_range`.
#[repr(C)]
struct FileCloneRange {
    source: i64,
    source_offset: u64,
    /// 0 would mean the rest of the source.
    bytes: u64,
    target_offset: u64,
}

const FICLONERANGE: rustix::ioctl::Opcode = opcode::write::<FileCloneRange>(0x94, 13);
const _: () = assert!(size_of::<FileCloneRange>() == 32);

/// Shares `bytes` at `offset` of `source` with `target` at the same offset.
pub(crate) fn clone_range(
    source: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    offset: u64,
    bytes: u64,
) -> Result<(), Errno> {
    if bytes == 0 {
        return Ok(());
    }
    let range = FileCloneRange {
        source: source.as_raw_fd().into(),
        source_offset: offset,
        bytes,
        target_offset: offset,
    };
    // SAFETY: the opcode is FICLONERANGE, which reads one `struct file_clone_range` and does not
    // retain it; the descriptor in it is borrowed for the call.
    unsafe { ioctl(target, Setter::<FICLONERANGE, FileCloneRange>::new(range)) }
}
