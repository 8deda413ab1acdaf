//! Disk space of a transfer: a limit on announcements, and reservations as bytes arrive.
//!
//! The sender is not trusted. An announcement costs it 150 bytes, so it must not take any space:
//! space is reserved one step ahead of the arrived bytes. The limit keeps one transfer from filling
//! the disk, or the machine's memory on a file system in memory.

use std::os::fd::AsFd;
use std::path::Path;

use evermap_observe::FileSystem;
use rustix::fs::FallocateFlags;
use rustix::io::{Errno, retry_on_intr};

use crate::error::{Error, Result};
use crate::span::Span;

/// Bytes per reservation. A signal makes some file systems undo a whole reservation call, so a call
/// must be short. A stalled sender holds at most this much per connection.
pub(super) const STEP_BYTES: u64 = 64 << 20;

/// Smaller spans are not reserved: writing them is one call too, and finds a full disk as soon.
const RESERVED_BYTES_MIN: u64 = 256 << 10;

/// Fraction of the machine's memory that one transfer may use by default on a file system in
/// memory: an eighth.
const MEMORY_SHARE: u64 = 8;

/// Space on the target's file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SpaceLimit {
    /// Bytes free now.
    free_bytes: u64,
    /// Maximum bytes per transfer.
    limit_bytes: u64,
}

impl SpaceLimit {
    /// Queries the file system of `file`. `requested` replaces the default limit: half of the free
    /// space, and on a file system in memory at most an eighth of the machine's memory. Cost: two
    /// system calls.
    pub(super) fn of(file: impl AsFd, path: &Path, requested: Option<u64>) -> Result<SpaceLimit> {
        let failed = || Error::io("read the free space of", path);
        let found = retry_on_intr(|| rustix::fs::fstatvfs(&file)).map_err(failed())?;
        let free_bytes = found.f_bavail.saturating_mul(found.f_frsize);
        let in_memory = FileSystem::of(file.as_fd()).map_err(failed())?.is_memory();
        Ok(SpaceLimit {
            free_bytes,
            limit_bytes: requested
                .unwrap_or_else(|| default_limit(free_bytes, in_memory, memory_bytes())),
        })
    }

    /// Returns the maximum bytes per transfer.
    pub(super) fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Checks an announced size.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if less is free. [`Error::TooLarge`] if it exceeds the limit per
    /// transfer.
    pub(super) fn check(&self, path: &Path, needed_bytes: u64) -> Result<()> {
        if needed_bytes > self.free_bytes {
            return Err(Error::NoSpace { path: path.into(), needed_bytes });
        }
        if needed_bytes > self.limit_bytes {
            return Err(too_large(path, needed_bytes, self.limit_bytes));
        }
        Ok(())
    }
}

/// Creates the error for a transfer above the limit.
pub(super) fn too_large(path: &Path, needed_bytes: u64, limit_bytes: u64) -> Error {
    Error::TooLarge { path: path.into(), needed_bytes, limit_bytes }
}

fn default_limit(free_bytes: u64, in_memory: bool, memory_bytes: u64) -> u64 {
    let half = free_bytes / 2;
    if in_memory { half.min(memory_bytes / MEMORY_SHARE) } else { half }
}

/// Returns the machine's memory in bytes.
fn memory_bytes() -> u64 {
    let machine = rustix::system::sysinfo();
    // The types of the fields differ between architectures.
    #[allow(clippy::unnecessary_cast)]
    (machine.totalram as u64).saturating_mul(u64::from(machine.mem_unit))
}

/// Reserves space for a span of at most [`STEP_BYTES`] that is about to arrive. File systems
/// without reservations detect a full disk when the bytes are written.
///
/// # Errors
/// [`Error::NoSpace`].
pub(super) fn reserve(file: impl AsFd, path: &Path, span: Span, needed_bytes: u64) -> Result<()> {
    if span.bytes() < RESERVED_BYTES_MIN {
        return Ok(());
    }
    debug_assert!(span.bytes() <= STEP_BYTES);
    let reserved = retry_on_intr(|| {
        rustix::fs::fallocate(&file, FallocateFlags::empty(), span.begin, span.bytes())
    });
    match reserved {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(()),
        Err(Errno::NOSPC | Errno::DQUOT) => Err(Error::NoSpace { path: path.into(), needed_bytes }),
        Err(errno) => Err(Error::io("reserve space for", path)(errno)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn default_limit_is_half_of_the_disk_or_an_eighth_of_memory() {
        assert_eq!(default_limit(1000, false, 80), 500);
        assert_eq!(default_limit(1000, true, 80), 10);
        assert_eq!(default_limit(10, true, 8000), 5);
    }

    #[test]
    fn free_space_is_checked_before_the_limit() {
        let space = SpaceLimit { free_bytes: 100, limit_bytes: 50 };
        let path = Path::new("file");
        assert!(space.check(path, 50).is_ok());
        assert!(matches!(space.check(path, 51), Err(Error::TooLarge { limit_bytes: 50, .. })));
        assert!(matches!(space.check(path, 101), Err(Error::NoSpace { needed_bytes: 101, .. })));
    }

    #[test]
    fn requested_limit_replaces_the_default() {
        let file = tempfile::tempfile().unwrap();
        let space = SpaceLimit::of(&file, Path::new("file"), Some(7)).unwrap();
        assert_eq!(space.limit_bytes(), 7);
        assert!(space.free_bytes > 0);
        let default = SpaceLimit::of(&file, Path::new("file"), None).unwrap();
        assert!(default.limit_bytes <= default.free_bytes);
    }
}
