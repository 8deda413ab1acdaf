//! Load methods. Each fills or maps a region, or returns the reason why it cannot.

mod fork;
pub(crate) mod mapped;
pub(crate) mod on_demand;
pub(crate) mod read;
pub(crate) mod recorded;
pub(crate) mod takeover;

use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use crate::error::Error;
use crate::job::Job;
use crate::region::Region;
use crate::sys::advice::{SafeAdvice, forget};
use crate::sys::userfault::Userfault;

/// Time for the threads of an ended load to exit, in steps.
const EXIT_STEP: Duration = Duration::from_micros(50);
const EXIT_STEPS_MAX: usize = 1000;

/// Reason why a method did not create an image.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The method is not possible here, but another may be. Nothing was changed.
    Refused(String),
    /// No method can succeed.
    Failed(Error),
}

impl Stop {
    /// Refuses files of unknown length, for methods that cannot just read to the end.
    pub(crate) fn if_unsized(job: &Job) -> Result<(), Stop> {
        match job.source.contents() {
            None => Ok(()),
            Some(_) => Err(Stop::Refused(
                "its length is unknown before it is read; use a method that reads".into(),
            )),
        }
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

/// Returns the error for a file that ended early although its length is unchanged, because of a
/// faulty disk or file system.
pub(crate) fn ended_early(job: &Job, offset: u64, bytes: usize) -> Error {
    match job.source.check() {
        Err(changed) => changed,
        Ok(()) => Error::Unreadable {
            path: job.source.path().into(),
            offset_bytes: offset,
            length_bytes: bytes as u64,
            source: std::io::ErrorKind::UnexpectedEof.into(),
        },
    }
}

/// Returns the error number to record for a window that could not be read.
pub(crate) fn errno_of(error: &Error) -> Errno {
    match error {
        Error::Unreadable { source, .. } | Error::Io { source, .. } => {
            Errno::from_io_error(source).unwrap_or(Errno::IO)
        }
        _ => Errno::STALE,
    }
}

/// Makes the pages of a region missing, so that accesses to them wait for `userfault`. Children do
/// not get the region.
///
/// # Safety
///
/// The region is anonymous, has no other user yet, and lives as long as `userfault`.
unsafe fn serve_missing_pages(
    job: &Job,
    region: &Region,
    userfault: &Userfault,
) -> Result<(), Stop> {
    let (address, bytes) = (region.address() as usize, region.bytes());
    if bytes == 0 {
        return Ok(());
    }
    // In a process that locks future memory (`mlockall`), these pages exist already, as zeros.
    // SAFETY: the caller guarantees that the region has no other user.
    if unsafe { forget(address, bytes) }.is_err() {
        return Err(Stop::Refused("all memory of this process is locked (mlockall)".into()));
    }
    region
        .advise(0, bytes, SafeAdvice::DontFork)
        .map_err(|errno| job.source.failed("keep from children the memory for", errno))?;
    // SAFETY: the caller guarantees that the region is unused and lives long enough.
    unsafe { userfault.register(address, bytes) }
        .map_err(|errno| Stop::Refused(format!("userfaultfd cannot serve its memory: {errno}")))
}

/// Waits until other threads have dropped their references to the state of a load that has ended.
/// Gives up after a moment, because a killed thread never drops its own.
fn wait_for_last_reference<T>(shared: &Arc<T>) {
    for _ in 0..EXIT_STEPS_MAX {
        if Arc::strong_count(shared) == 1 {
            return;
        }
        std::thread::sleep(EXIT_STEP);
    }
}
