//! Part files: interrupted copies that can be resumed.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{self, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::identity::Identity;
use super::journal::Journal;
use super::names::sibling_name;
use super::target::Target;
use super::unfinished::leads_to;
use super::verify::{NamedFile, first_difference};
use crate::error::{Error, Result};
use crate::meter::Meter;
use crate::span::{Span, Work};

/// Bytes between two records: the most an interruption loses.
pub(super) const STEP_BYTES: u64 = 64 << 20;
/// How often a part that is locked is tried, 5 ms apart.
const LOCK_ATTEMPTS: usize = 20;

/// An open part file: its journal and its name.
#[derive(Debug)]
pub(super) struct Part {
    journal: Journal,
    name: CString,
    path: PathBuf,
}

/// Locks a part file. Retries for a moment, because `clean` holds the lock while it removes one.
fn lock(file: &OwnedFd) -> Result<(), Errno> {
    let mut attempts = LOCK_ATTEMPTS;
    loop {
        attempts -= 1;
        match fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::AGAIN) if attempts > 0 => std::thread::sleep(Duration::from_millis(5)),
            other => return other,
        }
    }
}

/// Returns the path of a part, for messages.
pub(super) fn path_of(target_path: &Path, name: &CStr) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    let part = sibling_name(name, ".evermap-part");
    target_path.with_file_name(std::ffi::OsStr::from_bytes(part.to_bytes()))
}

impl Part {
    /// Opens or creates the part for a target. Removes from `work` the spans that the journal
    /// records and that equal the source. Returns their total size in bytes.
    pub(super) fn open<'a>(
        directory: BorrowedFd<'a>,
        name: &CStr,
        target_path: &Path,
        source: NamedFile<'_>,
        identity: &Identity,
        work: &mut Work,
        meter: &Meter,
    ) -> Result<(Part, Target<'a>, u64)> {
        let part_name = sibling_name(name, ".evermap-part");
        let path = path_of(target_path, name);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        // Between its opening and its locking, another copy may have given the file its name, and
        // `clean` may have removed it.
        let file = loop {
            let file = fs::openat(directory, &part_name, flags, Mode::RUSR | Mode::WUSR)
                .map_err(Error::io("open the unfinished copy", &path))?;
            lock(&file).map_err(|errno| match errno {
                Errno::AGAIN => Error::Busy { path: path.clone() },
                errno => Error::io("lock the unfinished copy", &path)(errno),
            })?;
            if leads_to(directory, &part_name, file.as_fd()) {
                break file;
            }
        };
        let journal_name = sibling_name(name, ".evermap-part.journal");
        let failed = || Error::io("write the journal of", &path);
        let (mut journal, mut recorded_spans) =
            Journal::open(directory, &journal_name, identity).map_err(failed())?;
        let arrived = NamedFile { file: file.as_fd(), path: &path };
        if first_difference(source, arrived, &recorded_spans, meter)?.is_some() {
            journal.reset(identity).map_err(failed())?;
            recorded_spans.clear();
        }
        if recorded_spans.is_empty() {
            fs::ftruncate(&file, 0).map_err(Error::io("empty the unfinished copy", &path))?;
        }
        recorded_spans.iter().for_each(|span| work.arrived_at(*span));
        let resumed_bytes = recorded_spans.iter().map(Span::bytes).sum();
        Ok((
            Part { journal, name: part_name, path },
            Target::resumed(directory, name, target_path, file),
            resumed_bytes,
        ))
    }

    /// Flushes and records spans that have arrived.
    pub(super) fn record(&mut self, target: BorrowedFd<'_>, arrived: &[Span]) -> Result<()> {
        if arrived.is_empty() {
            return Ok(());
        }
        fs::fdatasync(target).map_err(Error::io("flush", &self.path))?;
        arrived
            .iter()
            .try_for_each(|span| self.journal.record(*span))
            .map_err(Error::io("write the journal of", &self.path))
    }

    /// Gives the part the target's name and removes its journal.
    pub(super) fn publish(self, directory: BorrowedFd<'_>, name: &CStr) -> Result<()> {
        fs::renameat(directory, &self.name, directory, name)
            .map_err(Error::io("publish", &self.path))?;
        // A journal without its part is harmless: the next copy overwrites it.
        let _ = self.journal.remove(directory);
        Ok(())
    }
}
