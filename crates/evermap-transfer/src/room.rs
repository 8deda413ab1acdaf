//! Taking the room that a file is going to need, so that a full disk is known before the first byte.

use std::os::fd::BorrowedFd;
use std::path::Path;

use evermap_observe::FileSystem;
use rustix::fs::{self, FallocateFlags};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::meter::Meter;
use crate::span::Work;

/// Less than this is found to have no room by writing it, which is one call as well.
const RESERVED_BYTES_MIN: u64 = 256 << 10;

/// Reserves what is due in `target`, which gets as long as that needs. Where reserving is not to be had, or would change how the
/// file is stored, free space is asked for, or nothing.
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
    if file_system.writes_reserved_room_otherwise() {
        let free = fs::fstatvfs(target).map_err(Error::io("look at the file system of", path))?;
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
                return Err(Error::Cancelled { left: "nothing is left behind".into() });
            }
            Err(Errno::NOSPC | Errno::DQUOT) => {
                return Err(Error::NoSpace { path: path.into(), needed_bytes });
            }
            Err(errno) => return Err(Error::io("reserve room for", path)(errno)),
        }
    }
    Ok(())
}
