//! Reserves disk space, so that a full disk is detected before the first byte.

use std::os::fd::BorrowedFd;
use std::path::Path;

use evermap_observe::FileSystem;
use rustix::fs::{self, FallocateFlags};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::meter::Meter;
use crate::span::Work;

/// Smaller files are not reserved: writing them is one call too, and finds a full disk as soon.
const RESERVED_BYTES_MIN: u64 = 256 << 10;

/// Reserves space for `due` in `target` and extends it to that length. If reserving is unsupported,
/// does nothing. If it would change how the file is stored, checks the free space instead.
pub(crate) fn reserve(
    target: BorrowedFd<'_>,
    path: &Path,
    due: &Work,
    file_system: FileSystem,
    meter: &Meter,
) -> Result<()> {
    let needed_bytes = due.bytes().unwrap_or(0);
    if needed_bytes <= RESERVED_BYTES_MIN {
        return Ok(());
    }
    if file_system.preallocation_disables_compression() {
        let free = fs::fstatvfs(target).map_err(Error::io("read the free space of", path))?;
        return match free.f_bavail.saturating_mul(free.f_frsize) < needed_bytes {
            true => Err(Error::NoSpace { path: path.into(), needed_bytes }),
            false => Ok(()),
        };
    }
    for span in due.spans() {
        let reserved = loop {
            match fs::fallocate(target, FallocateFlags::empty(), span.begin, span.bytes()) {
                Err(Errno::INTR) if !meter.is_cancelled() => {}
                other => break other,
            }
        };
        match reserved {
            Ok(()) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => return Ok(()),
            Err(Errno::INTR) => {
                return Err(Error::Cancelled { left: "no partial file remains".into() });
            }
            Err(Errno::NOSPC | Errno::DQUOT) => {
                return Err(Error::NoSpace { path: path.into(), needed_bytes });
            }
            Err(errno) => return Err(Error::io("reserve space for", path)(errno)),
        }
    }
    Ok(())
}
