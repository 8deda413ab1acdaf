//! Load methods. Each fills or maps a region, or returns the reason why it cannot.

mod fork;
pub(crate) mod mapped;
pub(crate) mod on_demand;
pub(crate) mod read;
pub(crate) mod recorded;
pub(crate) mod takeover;

use rustix::io::Errno;

use crate::error::Error;
use crate::job::Job;

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
