//! Reads until a buffer is full.

use std::os::fd::BorrowedFd;

use rustix::io::{Errno, pread};

/// Reads until the buffer is full or the file ends. Returns the byte count.
pub(super) fn read_fully(
    file: BorrowedFd<'_>,
    buffer: &mut [u8],
    offset: u64,
) -> Result<usize, Errno> {
    let mut read_bytes = 0;
    while read_bytes < buffer.len() {
        match pread(file, &mut buffer[read_bytes..], offset + read_bytes as u64) {
            Ok(0) => break,
            Ok(read) => read_bytes += read,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(read_bytes)
}
