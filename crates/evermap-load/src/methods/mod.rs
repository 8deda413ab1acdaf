//! The ways to make an image. Each fills or maps a region, or says why it can't.

mod fork;
pub(crate) mod mapped;
pub(crate) mod on_demand;
pub(crate) mod read;
pub(crate) mod recorded;
pub(crate) mod takeover;

use std::sync::Arc;

use evermap_observe::Span;
use rustix::io::Errno;

use crate::counters::Counters;
use crate::error::Error;
use crate::part::Part;
use crate::source::Source;

/// What every method is given.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) source: Arc<Source>,
    pub(crate) part: Part,
    /// Where the part has data; elsewhere memory is zero as it is.
    pub(crate) data: Arc<[Span]>,
    pub(crate) counters: Arc<Counters>,
    /// Some of the file is cached: direct reads ask where.
    pub(crate) is_partly_cached: bool,
}

impl Job {
    /// Whether a window's range of the file has any data.
    pub(crate) fn has_data(&self, offset: u64, bytes: usize) -> bool {
        let end = offset + bytes as u64;
        let after = self.data.partition_point(|span| span.end <= offset);
        self.data.get(after).is_some_and(|span| span.begin < end)
    }
}

/// Why a method did not make an image.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It can't here: another may. Nothing was changed.
    Refused(String),
    /// Nothing can.
    Failed(Error),
}

impl Stop {
    /// For methods that take more than reading a file to its end.
    pub(crate) fn if_unsized(job: &Job) -> Result<(), Stop> {
        match job.source.contents() {
            None => Ok(()),
            Some(_) => Err(Stop::Refused(
                "its length is not known before it is read: load it by a method that reads".into(),
            )),
        }
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

/// A file that ended before it should, though its length is as it was: a disk or file system that lies.
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

/// Why a window is missing for good that nobody could read.
pub(crate) fn errno_of(error: &Error) -> Errno {
    match error {
        Error::Unreadable { source, .. } | Error::Io { source, .. } => {
            Errno::from_io_error(source).unwrap_or(Errno::IO)
        }
        _ => Errno::STALE,
    }
}
