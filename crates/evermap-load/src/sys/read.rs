//! Reads to addresses: memory of an image is no slice before it is read.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

/// `RWF_DONTCACHE` (Linux 6.14): pages that this read brings into the cache go when it is over.
const RWF_DONTCACHE: libc::c_int = 0x80;

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
/// The memory is the caller's, and nobody else uses it during the call.
pub(crate) unsafe fn read_at(
    file: BorrowedFd<'_>,
    address: *mut u8,
    bytes: usize,
    offset: u64,
    caching: Caching,
) -> Result<usize, Errno> {
    let offset = i64::try_from(offset).map_err(|_| Errno::OVERFLOW)?;
    loop {
        // SAFETY: the kernel writes up to `bytes` to memory that is the caller's.
        let came = unsafe {
            match caching {
                Caching::Kept => libc::pread64(file.as_raw_fd(), address.cast(), bytes, offset),
                Caching::Dropped => {
                    let vector = libc::iovec { iov_base: address.cast(), iov_len: bytes };
                    libc::preadv2(file.as_raw_fd(), &raw const vector, 1, offset, RWF_DONTCACHE)
                }
            }
        };
        match usize::try_from(came) {
            Ok(came) => return Ok(came),
            Err(_) => {
                let error = std::io::Error::last_os_error();
                match Errno::from_io_error(&error).unwrap_or(Errno::IO) {
                    Errno::INTR => {}
                    errno => return Err(errno),
                }
            }
        }
    }
}
