//! How a writer comes to an object: its locks, its superblock, and what its last writer left.
//!
//! Whatever will be mapped and however: here the object's files are locked and brought to their last
//! commit. What a dead writer committed to the log is applied, or is given to the new writer as an
//! overlay where readers of an older commit are in the way.

use std::sync::Arc;
use std::time::Duration;

use super::region_set::RegionSet;
use super::superblock::{self, Loaded, LogSource};
use super::{CONTENT_BYTE, Environment, Place, WRITER_BYTE, lock_byte};
use crate::commit::{
    Log, LogPolicy, Overlay, WriteOptions, let_go_of_log, locks, recover, set_log_required,
};
use crate::error::{Error, Result};
use crate::format::{PAGE_BYTES, Superblock};
use crate::mutate::{Mutant, mutated};
use crate::storage::{File, LockKind, OpenMode, Storage, parent_of};

/// An object whose writer lock is held.
pub(super) struct Acquired {
    pub(super) file: Arc<dyn File>,
    /// As of the last commit.
    pub(super) superblock: Box<Superblock>,
    pub(super) log: Option<Log>,
    /// What the log has and the file lacks.
    pub(super) overlay: Overlay,
    /// What the log has and another process applied.
    pub(super) applied_elsewhere: Overlay,
}

/// Locks the object for writing and recovers it if its last writer did not close it.
pub(super) fn acquire(
    environment: &Environment,
    place: &Place,
    policy: LogPolicy,
    settings: &WriteOptions,
    timeout: Duration,
) -> Result<Acquired> {
    let file = environment.storage.open(&place.path, OpenMode::ReadWrite)?;
    match policy {
        LogPolicy::WhileOpen => locks::lock_writer(&*file, timeout, &place.display_name)?,
        // For a moment, and not mapped in children.
        LogPolicy::Permanent { .. } => {
            lock_byte(&*file, LockKind::Exclusive, WRITER_BYTE, timeout, &place.display_name)?;
        }
    }
    if policy != LogPolicy::WhileOpen {
        for byte in [CONTENT_BYTE, locks::CONTENT_BYTE_SECOND] {
            lock_byte(&*file, LockKind::Exclusive, byte, timeout, &place.display_name)?;
        }
    }
    if !file.has_a_name()? {
        // Removed or replaced between the look at the catalog and the lock.
        let source = std::io::ErrorKind::NotFound.into();
        return Err(Error::from_io(source, "open", &place.path));
    }
    file.advise_random()?;
    let storage = &*environment.storage;
    let log = LogSource::Path(storage, &place.log_path, OpenMode::ReadWrite);
    let Loaded { superblock, log, overlay } = superblock::read(&*file, log, &place.identity)?;
    superblock::check_writable(&place.path, &superblock)?;
    environment.check_kind(place, &superblock)?;
    let applied_elsewhere = Overlay::default();
    let mut acquired = Acquired { file, superblock, log, overlay, applied_elsewhere };
    acquired.take_over(storage, place, policy, settings)?;
    Ok(acquired)
}

impl Acquired {
    /// Brings the object file up to what the log holds, where that can be.
    fn take_over(
        &mut self,
        storage: &dyn Storage,
        place: &Place,
        policy: LogPolicy,
        settings: &WriteOptions,
    ) -> Result<()> {
        let Some(opened) = &mut self.log else { return Ok(()) };
        let length = self.superblock.file_length;
        match policy {
            LogPolicy::Permanent { applied } => {
                if !applied || !is_caught_up(&*self.file, &self.overlay)? {
                    recover(&*self.file, opened, &self.overlay, length)?;
                    self.overlay.clear();
                }
                self.applied_elsewhere = std::mem::take(&mut self.overlay);
            }
            LogPolicy::WhileOpen => {
                // The file may be a copy that took the object's place just before a kill. That
                // it did has to be durable before the log forgets what the old file lacks.
                if !mutated(Mutant::NameTrustedUnflushed) {
                    storage.sync_directory(&parent_of(&place.path))?;
                }
                let large = length >= settings.log_kept_from_bytes;
                let goes = Recovery { file_length: length, keep_log: large };
                if recover_beside_readers(storage, &*self.file, opened, &self.overlay, goes)? {
                    self.overlay.clear();
                    self.log = None;
                } else if !mutated(Mutant::LogRequiredTrustedUnflushed) {
                    // A kill may have kept it from the disk, and records are to follow.
                    set_log_required(&*self.file, true)?;
                }
            }
        }
        Ok(())
    }
}

/// What a dead writer's growth left behind the last commit must not be seen by ours. Who reads an
/// older, longer commit must not see its pages go.
pub(super) fn cut_dead_growth(
    region_set: &RegionSet,
    file: &dyn File,
    committed_length: u64,
    beside_readers: bool,
) -> Result<()> {
    let length = file.length()?;
    if length <= committed_length || mutated(Mutant::DeadGrowthKept) {
        return Ok(());
    }
    if beside_readers {
        region_set.keep_length(length);
    }
    region_set.cut()
}

/// What a recovery comes to.
struct Recovery {
    file_length: u64,
    keep_log: bool,
}

/// Applies what a dead writer's log has and lets it go, unless readers of an older commit are in
/// the way: then the log is gone on with.
fn recover_beside_readers(
    storage: &dyn Storage,
    file: &dyn File,
    log: &mut Log,
    overlay: &Overlay,
    recovery: Recovery,
) -> Result<bool> {
    let Some(_content) = locks::begin_apply(file)? else { return Ok(false) };
    let Some(_log) = locks::hold_log_for_reset(file)? else { return Ok(false) };
    recover(file, log, overlay, recovery.file_length)?;
    let keep = recovery.keep_log && log.is_small() && log.was_needed();
    let_go_of_log(storage, file, log.file().path(), keep)?;
    Ok(true)
}

/// Page 0 is applied last: when it has every line that the log has for it, all of the log was
/// applied, in the page cache at least. Its number alone does not say so, for a full disk may have
/// taken the page in part, from a process that died then.
fn is_caught_up(file: &dyn File, overlay: &Overlay) -> Result<bool> {
    let mut page = [0; PAGE_BYTES as usize];
    file.read_at(&mut page, 0)?;
    let stored = page;
    overlay.patch(0, &mut page);
    Ok(page == stored)
}
