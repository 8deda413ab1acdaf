//! How often an inode's number has been used: what tells a file from another one that got its number later.

use std::ffi::c_long;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The inode's generation; none where the file system has no such thing. Cost: one call.
pub(crate) fn generation(file: BorrowedFd<'_>) -> Option<u32> {
    // Said to be a `long`, written as an `int` by every file system: both are in these bytes.
    let mut value: [u8; size_of::<c_long>()] = [0; _];
    // SAFETY: the kernel writes at most a `long` to the buffer, which is one, and lives during the call.
    let result =
        unsafe { libc::ioctl(file.as_raw_fd(), libc::FS_IOC_GETVERSION, value.as_mut_ptr()) };
    let (int, _) = value.split_first_chunk()?;
    (result == 0).then(|| u32::from_ne_bytes(*int))
}
