//! Parts: copies that an interruption leaves behind to be gone on with.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{self, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::identity::Identity;
use super::journal::Journal;
use super::target::{Target, beside};
use super::unfinished::leads_to;
use super::verify::{Named, first_difference};
use crate::error::{Error, Result};
use crate::meter::Meter;
use crate::span::{Span, Work};

/// Bytes between two records: what a cut loses at most.
pub(super) const STEP_BYTES: u64 = 64 << 20;
/// How often a part that is locked is tried, 5 ms apart.
const LOCK_ATTEMPTS: usize = 20;

/// The journal that belongs to a target under its part's name.
#[derive(Debug)]
pub(super) struct Part {
    journal: Journal,
    name: CString,
    path: PathBuf,
}

/// Locks a part. Waits a moment, as `clean` has the lock while it removes one.
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

/// Where a part is, for messages.
pub(super) fn path_of(target_path: &Path, name: &CStr) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    let part = beside(name, ".evermap-part");
    target_path.with_file_name(std::ffi::OsStr::from_bytes(part.to_bytes()))
}

impl Part {
    /// Opens or makes the part for this target, and strikes off `work` what it has: what its journal vouches for and what
    /// equals the source. Says how many bytes that are.
    pub(super) fn open<'a>(
        directory: BorrowedFd<'a>,
        name: &CStr,
        target_path: &Path,
        source: Named<'_>,
        identity: &Identity,
        work: &mut Work,
        meter: &Meter,
    ) -> Result<(Part, Target<'a>, u64)> {
        let part_name = beside(name, ".evermap-part");
        let path = path_of(target_path, name);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        // Between its opening and its locking, another copy may have given the file its name, and `clean` may have removed it.
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
        let journal_name = beside(name, ".evermap-part.journal");
        let failed = || Error::io("keep the journal of", &path);
        let (mut journal, mut vouched) =
            Journal::open(directory, &journal_name, identity).map_err(failed())?;
        let arrived = Named { file: file.as_fd(), path: &path };
        if first_difference(source, arrived, &vouched, meter)?.is_some() {
            journal.begin_anew(identity).map_err(failed())?;
            vouched.clear();
        }
        if vouched.is_empty() {
            fs::ftruncate(&file, 0).map_err(Error::io("empty the unfinished copy", &path))?;
        }
        vouched.iter().for_each(|span| work.arrived_at(*span));
        let resumed_bytes = vouched.iter().map(Span::bytes).sum();
        Ok((
            Part { journal, name: part_name, path },
            Target::resumed(directory, name, target_path, file),
            resumed_bytes,
        ))
    }

    /// These spans have arrived: they are made durable, and noted.
    pub(super) fn record(&mut self, target: BorrowedFd<'_>, arrived: &[Span]) -> Result<()> {
        if arrived.is_empty() {
            return Ok(());
        }
        fs::fdatasync(target).map_err(Error::io("flush", &self.path))?;
        arrived
            .iter()
            .try_for_each(|span| self.journal.record(*span))
            .map_err(Error::io("keep the journal of", &self.path))
    }

    /// The part gets the target's name, and has no journal any more.
    pub(super) fn publish(self, directory: BorrowedFd<'_>, name: &CStr) -> Result<()> {
        fs::renameat(directory, &self.name, directory, name)
            .map_err(Error::io("give its name to", &self.path))?;
        // What is left without its part vouches for nothing, and the next copy's takes its place.
        let _ = self.journal.remove(directory);
        Ok(())
    }
}
