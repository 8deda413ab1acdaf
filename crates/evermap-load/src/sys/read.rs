//! Reads to addresses: memory of an image is no slice before it is read.

use std::io::IoSliceMut;
use std::os::fd::BorrowedFd;

use rustix::io::{Errno, ReadWriteFlags};

/// `RWF_DONTCACHE` (Linux 6.14): pages that this read brings into the cache go when it is over.
const DONTCACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

/// Whether what is read stays in the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caching {
    /// As every read.
    Kept,
    /// What was not there before is dropped again; `EOPNOTSUPP` where that is not known.
    Dropped,
}

/// One `pread` of `bytes` at `offset` to `address`; bytes that came, 0 at the end of the file. Signals don't end it.
///
/// # Safety
///
/// The memory is the caller's, mapped (so that it has contents, zeros at least), and nobody else uses it during the call.
pub(crate) unsafe fn read_at(
    file: BorrowedFd<'_>,
    address: *mut u8,
    bytes: usize,
    offset: u64,
    caching: Caching,
) -> Result<usize, Errno> {
    i64::try_from(offset).map_err(|_| Errno::OVERFLOW)?;
    // By the system call itself: `pread` may be a function of somebody who has a load read for him.
    // SAFETY: the kernel writes up to `bytes` to memory that is the caller's.
    let memory = unsafe { std::slice::from_raw_parts_mut(address, bytes) };
    loop {
        let came = match caching {
            Caching::Kept => rustix::io::pread(file, &mut *memory, offset),
            Caching::Dropped => {
                let mut vectors = [IoSliceMut::new(memory)];
                rustix::io::preadv2(file, &mut vectors, offset, DONTCACHE)
            }
        };
        match came {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}
