//! Brings logged commits into the object file: apply, checkpoint, replacement, and close.
//!
//! Invariants: a commit is applied only after it is durable in the log, and not while a reader has
//! an older commit mapped. The log is reset or removed only after the object file was flushed
//! following an apply. A failed apply loses nothing: overlay, private pages and log stay, and a
//! later commit tries again.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use tracing::{debug, info, warn};

use super::engine::Engine;
use super::locks;
use super::recovery::{release_log, renew_code, write_page_overlay};
use super::settings::WhenLogFull;
use super::target::{LogPolicy, Span};
use crate::address::Sharing;
use crate::error::{Error, Result};
use crate::format::PAGE_BYTES;
use crate::mutate::{Mutant, mutated};
use crate::storage::{File, OpenMode, copy_contents, parent_of};

/// File name extension of an object file's copy until it replaces the object.
const REPLACEMENT_EXTENSION: &str = "new";

impl Engine {
    /// Keeps memory and log within their limits.
    pub(super) fn after_commit(&mut self) -> Result<()> {
        if let LogPolicy::Permanent { .. } = self.policy {
            return self.try_apply().map(drop);
        }
        if self.log_bytes() > self.settings.log_bytes_max {
            if !self.checkpoint_logged()? && self.settings.when_log_full == WhenLogFull::Replace {
                self.replace_object()?;
            }
        } else if self.last_checkpoint.elapsed() > self.settings.checkpoint_after {
            self.checkpoint_logged()?;
        }
        let (retained, latest) = self.retained.bytes();
        let held = retained + self.overlay.bytes() as u64;
        if !self.retained.allowed || held > self.settings.hot_bytes_max {
            let also_latest = !self.retained.allowed || latest > self.settings.hot_bytes_max / 2;
            self.evict_retained(also_latest)?;
        }
        Ok(())
    }

    /// Applies, and evicts retained pages: those that were not in the last commit, or all.
    fn evict_retained(&mut self, also_latest: bool) -> Result<()> {
        if self.try_apply()? {
            let addresses = self.retained.take(also_latest);
            self.drop_pages(&addresses)?;
        }
        Ok(())
    }

    /// Like [`apply`](Engine::apply), but does not end the session if the disk refuses: the commits
    /// are safe in the log.
    fn try_apply(&mut self) -> Result<bool> {
        let applied = self.apply();
        self.postpone_on_error(applied)
    }

    /// Writes the lines that other processes applied. If their flush failed, this makes the lines
    /// durable.
    fn rewrite_applied(&self) -> Result<bool> {
        if mutated(Mutant::AppliedElsewhereTrusted) {
            return Ok(true);
        }
        self.postpone_on_error(
            write_page_overlay(&self.applied_elsewhere, &*self.object).map(|()| true),
        )
    }

    fn postpone_on_error(&self, applied: Result<bool>) -> Result<bool> {
        match applied {
            Err(error)
                if error.is_lack_of_room()
                    || matches!(error, Error::Io { .. } | Error::LogFull { .. }) =>
            {
                warn!(%error, path = %self.object.path().display(), "commits stay in the log for now");
                Ok(false)
            }
            other => other,
        }
    }

    /// Writes the overlay to the object file, without a flush. Returns false while readers of an
    /// older commit are present.
    fn apply(&mut self) -> Result<bool> {
        if self.overlay.is_empty() {
            return Ok(true);
        }
        // A page must not reach the file before its record is durable.
        if !mutated(Mutant::ApplyBeforeRecord) {
            self.log_and_flush()?;
        }
        let object = Arc::clone(&self.object);
        let _content = match self.policy {
            // The session holds the lock already.
            LogPolicy::Permanent { .. } => None,
            LogPolicy::WhileOpen => match locks::begin_apply(&*object)? {
                Some(held) => Some(held),
                None => return Ok(false),
            },
        };
        if !object.is_direct() {
            self.folios.prepare(&self.overlay.page_numbers(), &self.views);
        }
        self.applies.fetch_add(1, Ordering::SeqCst);
        let written = write_page_overlay(&self.overlay, &*object);
        self.applies.fetch_add(1, Ordering::SeqCst);
        written?;
        if !self.applied_elsewhere.is_empty() {
            self.applied_elsewhere.add_all(&self.overlay);
        }
        self.overlay.clear();
        Ok(true)
    }

    /// Makes the object file durable and empties the log. Returns false while readers are in the
    /// way.
    pub(crate) fn checkpoint(&mut self) -> Result<bool> {
        self.check_usable()?;
        self.sync()?;
        self.checkpoint_logged()
    }

    /// Like [`checkpoint`](Engine::checkpoint), for commits that are already in the log.
    pub(super) fn checkpoint_logged(&mut self) -> Result<bool> {
        if self.log_bytes() == 0 {
            return Ok(true);
        }
        debug!(path = %self.object.path().display(), sequence = self.sequence(), "checkpoint");
        if !self.try_apply()? || !self.rewrite_applied()? {
            return Ok(false);
        }
        if !mutated(Mutant::ObjectNotFlushedBeforeReset) {
            self.object.sync_data().map_err(|e| self.poison(e))?;
        }
        let object = Arc::clone(&self.object);
        let Some(_log_lock) = locks::hold_log_for_reset(&*object)? else {
            return Ok(false);
        };
        self.reset_log()?;
        self.applied_elsewhere.clear();
        Ok(true)
    }

    fn reset_log(&mut self) -> Result<()> {
        self.last_checkpoint = std::time::Instant::now();
        let renewed = self.log.as_ref().map_or(Ok(()), |log| renew_code(&*self.object, log));
        renewed.map_err(|e| self.poison(e))?;
        match self.log.as_mut().map(super::log::Log::reset) {
            Some(Err(error)) => Err(self.poison(error)),
            _ => {
                self.logged_end = 0;
                Ok(())
            }
        }
    }

    /// Ensures that the log has no lines after `length` bytes of the file, which is about to be
    /// truncated there. Otherwise a replay after a crash would overwrite later growth. Returns
    /// false while readers are in the way.
    pub(crate) fn forget_after(&mut self, length: u64) -> Result<bool> {
        if self.logged_end <= length / PAGE_BYTES || mutated(Mutant::TruncatedUnderTheLog) {
            return Ok(true);
        }
        self.checkpoint()
    }

    /// Replaces the object file by a copy with everything applied. Readers keep the old file, and
    /// the log can be emptied. There must be no stores since the last commit.
    fn replace_object(&mut self) -> Result<()> {
        let path = self.object.path().to_path_buf();
        info!(path = %path.display(), "replacing the object file while it is read");
        let copy_path = path.with_extension(REPLACEMENT_EXTENSION);
        self.remove_half_made_copy()?;
        self.sync()?;
        if self.log_bytes() == 0 {
            // The readers have left in the meantime.
            return Ok(());
        }
        let copy = self.storage.open(&copy_path, OpenMode::CreateNew)?;
        let copied = self.make_copy(&*copy);
        if let Err(error) = copied {
            let _ = self.storage.remove(&copy_path);
            if !error.is_lack_of_room() && !matches!(error, Error::Io { .. }) {
                return Err(error);
            }
            warn!(%error, "cannot copy the object file: the log grows past its limit");
            return Ok(());
        }
        // Lock the copy before the rename makes it visible.
        copy.try_lock_for_good(locks::WRITER_BYTE)?;
        self.storage.rename(&copy_path, &path)?;
        if !mutated(Mutant::ReplacementNotFlushed) {
            self.storage.sync_directory(&parent_of(&path))?;
        }
        let old = self.switch_to(copy.with_path(&path)?)?;
        // A reader that has the old file open and has not read the log yet must finish first, or
        // notice the replacement.
        let object = Arc::clone(&self.object);
        let locks = (locks::hold_log_for_reset(&*old)?, locks::hold_log_for_reset(&*object)?);
        if let (Some(_), Some(_)) = locks {
            self.reset_log()?;
        }
        Ok(())
    }

    /// Removes the copy that a kill during [`replace_object`](Engine::replace_object) left.
    pub(super) fn remove_half_made_copy(&self) -> Result<()> {
        let path = self.object.path().with_extension(REPLACEMENT_EXTENSION);
        match self.storage.remove(&path) {
            Err(e) if !e.is_missing_file() => Err(e),
            _ => Ok(()),
        }
    }

    fn make_copy(&self, copy: &dyn File) -> Result<()> {
        copy.advise_random()?;
        // The part after the last commit stays with the readers of the old file: growth uses space
        // reserved for this file alone, not shared blocks.
        copy_contents(&*self.object, copy, self.file_length)?;
        write_page_overlay(&self.overlay, copy)?;
        if mutated(Mutant::CopyNotFlushed) { Ok(()) } else { copy.sync_data() }
    }

    /// Maps another file that holds the last commit. Returns the old file.
    fn switch_to(&mut self, object: Arc<dyn File>) -> Result<Arc<dyn File>> {
        object.advise_random()?;
        let mapped = Arc::clone(&self.mapped);
        let mut mapped = mapped.lock().unwrap_or_else(PoisonError::into_inner);
        for Span { mapping, address, length, file_offset } in &self.spans {
            let sharing = Sharing::PrivateWritable;
            mapping.map(&*object, *address, *length, *file_offset, sharing)?;
            mapping.advise_random(*address, *length);
        }
        *mapped = Arc::clone(&object);
        drop(mapped);
        let ranges: Vec<(u64, u64)> =
            self.spans.iter().map(|s| (s.address, s.address + s.length)).collect();
        if self.scanner.is_watching() {
            self.retained.allowed = self.scanner.watch(&ranges);
        }
        self.views.clear();
        self.retained.take(true);
        self.overlay.clear();
        Ok(std::mem::replace(&mut self.object, object))
    }

    /// Ends the session: makes a checkpoint, and removes the log unless it is permanent. While
    /// readers are in the way, the log stays and has everything.
    pub(crate) fn close(&mut self) -> Result<()> {
        if self.policy != LogPolicy::WhileOpen {
            return self.checkpoint().map(drop);
        }
        self.check_usable()?;
        self.sync()?;
        if self.log.is_none() || !self.apply()? {
            return Ok(());
        }
        // If the log is empty, the last checkpoint flushed everything.
        if self.log_bytes() > 0 && !mutated(Mutant::CloseBeforeFlush) {
            self.object.sync_data().map_err(|e| self.poison(e))?;
        }
        let object = Arc::clone(&self.object);
        let Some(_log_lock) = locks::hold_log_for_reset(&*object)? else {
            return Ok(());
        };
        self.flusher = None;
        let large = self.file_length >= self.settings.log_kept_from_bytes;
        let keep = self.log.take().is_some_and(|log| log.is_small()) && large;
        release_log(&*self.storage, &*object, &self.log_path, keep)
    }
}
