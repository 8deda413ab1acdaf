//! Locks on bytes of the object file: they decide who may read, and when the file's pages may
//! change.
//!
//! [`WRITER_BYTE`] is held by the process that changes the object or removes its file. A reader
//! holds one of the two content bytes for as long as it has the object mapped, and a writer holds
//! the first one while it applies. A reader may arrive during an apply: it reads the log to its
//! end, which contains everything that is being applied. It then takes the second byte, so that the
//! *next* apply, which would change pages under it, is held off. [`LOG_BYTE`] keeps a log from
//! being reset or removed while it is read.
//!
//! All are kernel locks: they end with their holder. Forked children hold the locks of snapshots
//! and inherited sessions, and no others: see [`File::leave_locks_to_children`].

use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::mutate::{Mutant, mutated};
use crate::storage::{File, LockKind};

/// Held exclusively by the writer.
pub(crate) const WRITER_BYTE: u64 = 0;
/// Held shared by readers, exclusively by a writer during an apply.
pub(crate) const CONTENT_BYTE: u64 = 1;
/// Held shared by readers that arrived during an apply.
pub(crate) const CONTENT_BYTE_SECOND: u64 = 2;
/// Held shared while a log is read, exclusively while it is reset or removed.
pub(crate) const LOG_BYTE: u64 = 3;

/// Timeout for locks that are held only briefly, usually for microseconds.
const BRIEF_TIMEOUT: Duration = Duration::from_secs(2);

/// A locked byte, unlocked on drop.
pub(crate) struct Held<'a> {
    file: &'a dyn File,
    byte: u64,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let _ = self.file.unlock(self.byte, 1);
    }
}

/// Locks one byte, waiting up to `timeout` for other holders.
pub(crate) fn lock_byte(
    file: &dyn File,
    kind: LockKind,
    byte: u64,
    timeout: Duration,
    display_name: &str,
) -> Result<()> {
    let holder = match (kind, byte) {
        (LockKind::Exclusive, CONTENT_BYTE) => "another session or process is reading it",
        _ => "another session or process is writing it",
    };
    wait_for(timeout, display_name, holder, || file.try_lock(kind, byte, 1))
}

/// Like [`lock_byte`] for the writer's byte, for as long as the file is open. No child process
/// inherits the lock, however it was created.
pub(crate) fn lock_writer(file: &dyn File, timeout: Duration, display_name: &str) -> Result<()> {
    let holder = "another session or process is writing it";
    wait_for(timeout, display_name, holder, || file.try_lock_for_good(WRITER_BYTE))
}

/// Retries with growing pauses until it succeeds or the timeout expires.
fn wait_for(
    timeout: Duration,
    display_name: &str,
    holder: &str,
    mut try_it: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let since = Instant::now();
    let mut pause = Duration::from_micros(20);
    while !try_it()? {
        if since.elapsed() >= timeout {
            return Err(Error::Busy { what: display_name.to_string(), holder: holder.to_string() });
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(5));
    }
    Ok(())
}

/// Locks the content for reading and returns the byte to unlock. Does not wait for commits and
/// applies: they hold both bytes at once only for an instant. Making an object shorter holds both
/// during a commit, and a session with a permanent log holds both until it ends.
pub(crate) fn begin_reading(file: &dyn File, display_name: &str) -> Result<u64> {
    let mut taken = CONTENT_BYTE;
    wait_for(BRIEF_TIMEOUT, display_name, "its writer is busy with it", || {
        for byte in [CONTENT_BYTE, CONTENT_BYTE_SECOND] {
            if file.try_lock(LockKind::Shared, byte, 1)? {
                taken = byte;
                return Ok(true);
            }
        }
        Ok(false)
    })?;
    Ok(taken)
}

/// Locks the log for reading.
pub(crate) fn hold_log_for_reading<'a>(file: &'a dyn File, display_name: &str) -> Result<Held<'a>> {
    wait_for(BRIEF_TIMEOUT, display_name, "its log is being reset", || {
        file.try_lock(LockKind::Shared, LOG_BYTE, 1)
    })?;
    Ok(Held { file, byte: LOG_BYTE })
}

/// Locks the log for resetting or removing it. `None` if readers keep it longer than reading a log
/// takes.
pub(crate) fn hold_log_for_reset(file: &dyn File) -> Result<Option<Held<'_>>> {
    let locked =
        wait_for(BRIEF_TIMEOUT, "", "", || file.try_lock(LockKind::Exclusive, LOG_BYTE, 1));
    match locked {
        Ok(()) => Ok(Some(Held { file, byte: LOG_BYTE })),
        Err(Error::Busy { .. }) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Locks the content for changing the file's pages; `None` while any reader has it mapped, of an
/// older commit or of the newest. New readers may arrive during the apply and read up to the log's
/// current end.
pub(crate) fn begin_apply(file: &dyn File) -> Result<Option<Held<'_>>> {
    let second = file.try_lock(LockKind::Exclusive, CONTENT_BYTE_SECOND, 1)?
        || mutated(Mutant::SecondByteIgnored);
    if !second {
        return Ok(None);
    }
    let _second = Held { file, byte: CONTENT_BYTE_SECOND };
    let alone = file.try_lock(LockKind::Exclusive, CONTENT_BYTE, 1)?
        || mutated(Mutant::ReadersNotWaitedFor);
    Ok(alone.then_some(Held { file, byte: CONTENT_BYTE }))
}

/// Locks the content against all readers. Returns `None` while any reader holds it. Unlike
/// [`begin_apply`], it also makes new readers wait.
pub(crate) fn lock_exclusively(file: &dyn File) -> Result<Option<[Held<'_>; 2]>> {
    let mut held = Vec::with_capacity(2);
    for byte in [CONTENT_BYTE_SECOND, CONTENT_BYTE] {
        if !file.try_lock(LockKind::Exclusive, byte, 1)? {
            return Ok(None);
        }
        held.push(Held { file, byte });
    }
    Ok(held.try_into().ok())
}
