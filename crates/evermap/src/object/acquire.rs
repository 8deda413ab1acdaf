//! Acquires an object for writing: its locks, its superblock, and what its last writer left.
//!
//! The object's files are locked and brought to their last commit before anything is mapped.
//! Commits of a dead writer that are only in the log are applied. If readers of an older commit are
//! in the way, the new writer gets them as an overlay instead. Changes here must keep that order:
//! lock, recover, then map.

use std::sync::Arc;
use std::time::Duration;

use super::region_set::RegionSet;
use super::superblock::{self, Loaded, LogSource};
use super::{CONTENT_BYTE, Environment, ObjectPaths, WRITER_BYTE, lock_byte};
use crate::commit::{
    Log, LogPolicy, Overlay, WriteOptions, locks, recover, release_log, set_log_required,
};
use crate::error::{Error, Result};
use crate::format::{PAGE_BYTES, Superblock};
use crate::mutate::{Mutant, mutated};
use crate::storage::{File, LockKind, OpenMode, Storage, parent_of};

/// An object whose writer lock is held.
pub(super) struct Acquired {
    pub(super) file: Arc<dyn File>,
    /// Superblock as of the last commit.
    pub(super) superblock: Box<Superblock>,
    pub(super) log: Option<Log>,
    /// Lines that are in the log and not in the file.
    pub(super) overlay: Overlay,
    /// Lines of the log that another process already applied.
    pub(super) applied_elsewhere: Overlay,
}

/// Locks the object for writing and recovers it if its last writer did not close it.
pub(super) fn acquire(
    environment: &Environment,
    paths: &ObjectPaths,
    policy: LogPolicy,
    settings: &WriteOptions,
    timeout: Duration,
) -> Result<Acquired> {
    let file = environment.storage.open(&paths.path, OpenMode::ReadWrite)?;
    match policy {
        LogPolicy::WhileOpen => locks::lock_writer(&*file, timeout, &paths.display_name)?,
        // Held briefly and never inherited by children, so an ordinary byte lock is enough.
        LogPolicy::Permanent { .. } => {
            lock_byte(&*file, LockKind::Exclusive, WRITER_BYTE, timeout, &paths.display_name)?;
        }
    }
    if policy != LogPolicy::WhileOpen {
        for byte in [CONTENT_BYTE, locks::CONTENT_BYTE_SECOND] {
            lock_byte(&*file, LockKind::Exclusive, byte, timeout, &paths.display_name)?;
        }
    }
    if !file.has_a_name()? {
        // The file was removed or replaced between the catalog look-up and the lock.
        let source = std::io::ErrorKind::NotFound.into();
        return Err(Error::from_io(source, "open", &paths.path));
    }
    file.advise_random()?;
    let storage = &*environment.storage;
    let log = LogSource::Path(storage, &paths.log_path, OpenMode::ReadWrite);
    let Loaded { superblock, log, overlay } = superblock::read(&*file, log, &paths.identity)?;
    superblock::check_writable(&paths.path, &superblock)?;
    environment.check_kind(paths, &superblock)?;
    let applied_elsewhere = Overlay::default();
    let mut acquired = Acquired { file, superblock, log, overlay, applied_elsewhere };
    acquired.take_over(storage, paths, policy, settings)?;
    Ok(acquired)
}

impl Acquired {
    /// Brings the object file up to the log's last commit, unless readers prevent it.
    fn take_over(
        &mut self,
        storage: &dyn Storage,
        paths: &ObjectPaths,
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
                // The file may be a copy that replaced the object just before a kill. The rename
                // must be durable before the log forgets what the old file lacks.
                if !mutated(Mutant::NameTrustedUnflushed) {
                    storage.sync_directory(&parent_of(&paths.path))?;
                }
                let large = length >= settings.log_kept_from_bytes;
                let goes = Recovery { file_length: length, keep_log: large };
                if recover_beside_readers(storage, &*self.file, opened, &self.overlay, goes)? {
                    self.overlay.clear();
                    self.log = None;
                } else if !mutated(Mutant::LogRequiredTrustedUnflushed) {
                    // A kill may have kept the flag from the disk, and records are to follow.
                    set_log_required(&*self.file, true)?;
                }
            }
        }
        Ok(())
    }
}

/// Cuts off what a dead writer's growth left after the last commit, so that the new writer never
/// sees it. With readers present the file keeps its length: a reader of an older, longer commit
/// still uses those pages.
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

/// Parameters of a recovery.
struct Recovery {
    file_length: u64,
    keep_log: bool,
}

/// Applies a dead writer's log and releases the log. Returns false if readers of an older commit,
/// or of the log, are in the way; the writer then continues with the log as it is.
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
    release_log(storage, file, log.file().path(), keep)?;
    Ok(true)
}

/// Returns true if every commit in the log has been applied, in the page cache at least. Page 0 is
/// applied last, so it shows that when it has every line the log has for it. Comparing the commit
/// number alone is not enough: on a full disk a process that then died may have written the page in
/// part.
fn is_caught_up(file: &dyn File, overlay: &Overlay) -> Result<bool> {
    let mut page = [0; PAGE_BYTES as usize];
    file.read_at(&mut page, 0)?;
    let stored = page;
    overlay.patch(0, &mut page);
    Ok(page == stored)
}
