//! Who may read, and when the file's pages may change: locks on bytes of the object file.
//!
//! [`WRITER_BYTE`] is held by whoever changes the object or removes its file. A reader holds one of
//! the two content bytes for as long as it has the object mapped; a writer holds the first one
//! while it applies. A reader may come during an apply: it reads the log to its end, and that holds
//! everything that is being applied. It takes the second byte then, so that the *next* apply, which
//! would change pages under it, finds it. [`LOG_BYTE`] keeps a log from being reset or removed
//! while somebody reads it.
//!
//! All are kernel locks: they end with their holder. Forked children hold those of snapshots and of
//! inherited sessions, and no others: see [`File::leave_locks_to_children`].

use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::mutate::{Mutant, mutated};
use crate::storage::{File, LockKind};

/// Held exclusively by the one who changes the object.
pub(crate) const WRITER_BYTE: u64 = 0;
/// Held shared by readers.
pub(crate) const CONTENT_BYTE: u64 = 1;
/// Held shared by readers that came during an apply.
pub(crate) const CONTENT_BYTE_SECOND: u64 = 2;
/// Held shared by who is reading the log.
pub(crate) const LOG_BYTE: u64 = 3;

/// How long somebody who came between two locks waits for the other to get on: microseconds as a
/// rule.
const INSTANT: Duration = Duration::from_secs(2);

/// A byte that is unlocked when this is dropped.
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

/// Locks the writer's byte, as [`lock_byte`] does, for as long as the file is open: children of this
/// process, however they were made, do not have it.
pub(crate) fn lock_writer(file: &dyn File, timeout: Duration, display_name: &str) -> Result<()> {
    let holder = "another session or process is writing it";
    wait_for(timeout, display_name, holder, || file.try_lock_for_good(WRITER_BYTE))
}

/// Tries until it works or the timeout ends.
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

/// Locks the content for reading; gives the byte to unlock. Waits for nobody: both bytes are taken
/// only for an instant.
pub(crate) fn begin_reading(file: &dyn File, display_name: &str) -> Result<u64> {
    let mut taken = CONTENT_BYTE;
    wait_for(INSTANT, display_name, "its writer is busy with it", || {
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

/// Locks the log for reading it.
pub(crate) fn hold_log_for_reading<'a>(file: &'a dyn File, display_name: &str) -> Result<Held<'a>> {
    wait_for(INSTANT, display_name, "its log is being reset", || {
        file.try_lock(LockKind::Shared, LOG_BYTE, 1)
    })?;
    Ok(Held { file, byte: LOG_BYTE })
}

/// Locks the log for resetting or removing it; readers hold it for as long as it takes to read.
pub(crate) fn hold_log_for_reset(file: &dyn File) -> Result<Option<Held<'_>>> {
    let locked = wait_for(INSTANT, "", "", || file.try_lock(LockKind::Exclusive, LOG_BYTE, 1));
    match locked {
        Ok(()) => Ok(Some(Held { file, byte: LOG_BYTE })),
        Err(Error::Busy { .. }) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Locks the content for changing the file's pages; `None` while readers of an older commit have it
/// mapped. From now on readers may come, up to the end of the log as it is.
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

/// Locks the content against everybody, also against readers of the newest commit; `None` while there
/// are any. Who comes meanwhile waits.
pub(crate) fn hold_alone(file: &dyn File) -> Result<Option<[Held<'_>; 2]>> {
    let mut held = Vec::with_capacity(2);
    for byte in [CONTENT_BYTE_SECOND, CONTENT_BYTE] {
        if !file.try_lock(LockKind::Exclusive, byte, 1)? {
            return Ok(None);
        }
        held.push(Held { file, byte });
    }
    Ok(held.try_into().ok())
}
