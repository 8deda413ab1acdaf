//! Read buffers, allocated before the first read and locked if the process may.

use std::path::Path;

use super::Note;
use crate::sys::memory::{Lock, Memory};
use crate::{Error, Result};

/// Initial buffer size if the length of reads is unknown.
pub(super) const READ_BYTES: usize = 256 << 10;

/// Allocates a buffer for reads of `bytes` bytes.
pub(super) fn memory(bytes: usize, lock: Lock, path: &Path) -> Result<Memory> {
    Memory::new(bytes, lock).map_err(|source| Error::Io {
        operation: "allocate a read buffer for",
        path: path.into(),
        source,
    })
}

/// Grows the buffer for a read of `bytes` bytes. Allocates only for reads longer than all before.
pub(super) fn make_room(memory: &mut Memory, bytes: usize, lock: Lock, path: &Path) -> Result<()> {
    if bytes > memory.len() {
        *memory = self::memory(bytes.next_power_of_two(), lock, path)?;
    }
    Ok(())
}

/// Makes a note if the memory should be locked and is not.
pub(super) fn note_if_unlocked(
    is_locked: bool,
    wanted: Lock,
    bytes: usize,
    path: &Path,
) -> Option<Note> {
    (wanted == Lock::Wanted && !is_locked).then(|| {
        let what = format!("{} KiB of locked read buffer for {}", bytes >> 10, path.display());
        Note::new(
            what,
            "the limit of locked memory is too low, so the buffer may be swapped out: raise the limit (`ulimit -l`, `LimitMEMLOCK=`), or give it CAP_IPC_LOCK",
        )
    })
}
