//! Memory that reads go to: there, and locked where that may be, before the first of them.

use std::path::Path;

use super::Note;
use crate::sys::memory::{Lock, Memory};
use crate::{Error, Result};

/// What a reader begins with that was not told how long reads will be.
pub(super) const READ_BYTES: usize = 256 << 10;

/// Memory for reads of so many bytes.
pub(super) fn memory(bytes: usize, lock: Lock, path: &Path) -> Result<Memory> {
    Memory::new(bytes, lock).map_err(|source| Error::Io {
        operation: "get memory to read into for",
        path: path.into(),
        source,
    })
}

/// Makes room for a read of so many bytes. Costs an allocation where none was so long before.
pub(super) fn make_room(memory: &mut Memory, bytes: usize, lock: Lock, path: &Path) -> Result<()> {
    if bytes > memory.len() {
        *memory = self::memory(bytes.next_power_of_two(), lock, path)?;
    }
    Ok(())
}

/// Says it if memory could not be locked.
pub(super) fn say_if_unlocked(
    is_locked: bool,
    wanted: Lock,
    bytes: usize,
    path: &Path,
) -> Option<Note> {
    (wanted == Lock::Wanted && !is_locked).then(|| {
        let what = format!("{} KiB of memory for reads of {}, locked", bytes >> 10, path.display());
        Note::new(
            what,
            "the limit of locked memory of this process is too low, so they may be swapped out: raise it (`ulimit -l`, `LimitMEMLOCK=`), or give it CAP_IPC_LOCK",
        )
    })
}
