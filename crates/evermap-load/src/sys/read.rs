//! Reads to raw addresses, because an image's memory is not a slice before it is loaded.

use std::io::IoSliceMut;
use std::os::fd::BorrowedFd;

use rustix::io::{Errno, ReadWriteFlags};

/// `RWF_DONTCACHE` (Linux 6.14): evicts the pages that this read brings into the cache.
const DONTCACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

/// Treatment of the page cache by a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caching {
    /// Pages stay in the cache, as after an ordinary read.
    Kept,
    /// Pages that were not cached before are evicted. Fails with `EOPNOTSUPP` if the kernel does
    /// not support it.
    Dropped,
}

/// Reads up to `bytes` at `offset` to `address` with one `pread`. Returns the number of bytes read,
/// 0 at the end of the file. Retries after signals.
///
/// # Safety
///
/// The memory belongs to the caller, is mapped (so it is initialised, at least to zeros), and has
/// no other user during the call.
pub(crate) unsafe fn read_at(
    file: BorrowedFd<'_>,
    address: *mut u8,
    bytes: usize,
    offset: u64,
    caching: Caching,
) -> Result<usize, Errno> {
    i64::try_from(offset).map_err(|_| Errno::OVERFLOW)?;
    // Make the system call directly: the C library's `pread` may be replaced by a library that
    // loads files itself.
    // SAFETY: the kernel writes up to `bytes` to memory that belongs to the caller.
    let memory = unsafe { std::slice::from_raw_parts_mut(address, bytes) };
    loop {
        let read_bytes = match caching {
            Caching::Kept => rustix::io::pread(file, &mut *memory, offset),
            Caching::Dropped => {
                let mut vectors = [IoSliceMut::new(memory)];
                rustix::io::preadv2(file, &mut vectors, offset, DONTCACHE)
            }
        };
        match read_bytes {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}
