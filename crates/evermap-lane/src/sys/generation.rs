//! Generation of an inode, which tells a file from a later one that reuses its inode number.

use std::ffi::c_long;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Returns the inode's generation, or `None` if the file system has none. Cost: one call.
pub(crate) fn generation(file: BorrowedFd<'_>) -> Option<u32> {
    // Declared as `long`, but every file system writes an `int`; both fit in these bytes.
    let mut value: [u8; size_of::<c_long>()] = [0; _];
    // SAFETY: the kernel writes at most a `long` to the buffer, which has that size and outlives
    // the call.
    let result =
        unsafe { libc::ioctl(file.as_raw_fd(), libc::FS_IOC_GETVERSION, value.as_mut_ptr()) };
    let (int, _) = value.split_first_chunk()?;
    (result == 0).then(|| u32::from_ne_bytes(*int))
}
