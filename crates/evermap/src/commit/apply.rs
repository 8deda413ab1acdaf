//! Brings logged commits into the object file: apply, checkpoint, replacement, and close.
//!
//! Invariants: a commit is applied only after it is durable in the log, and not while a reader has
//! an older commit mapped. The log is reset or removed only after the object file was flushed
//! following an apply, or was replaced by a flushed copy with everything applied. A failed apply
//! loses nothing: overlay, private pages and log stay, and a later commit tries again.

use std::sync::Arc;

use tracing::{debug, info, warn};

use super::engine::Engine;
use super::locks;
use super::logging::Logging;
use super::recovery::{release_log, write_page_overlay};
use super::target::LogPolicy;
use crate::error::{Error, Result};
use crate::mutate::{Mutant, mutated};
use crate::storage::{File, OpenMode, parent_of};

impl Engine {
    /// Applies, and evicts retained pages: those that were not in the last commit, or all.
    pub(super) fn evict_retained(&mut self, also_latest: bool) -> Result<()> {
        if self.try_apply()? {
            self.pages.evict_retained(also_latest)?;
        }
        Ok(())
    }

    /// Like [`apply`](Engine::apply), but does not end the session if the disk refuses: the commits
    /// are safe in the log.
    pub(super) fn try_apply(&mut self) -> Result<bool> {
        let applied = self.apply();
        self.postpone_on_error(applied)
    }

    /// Writes the lines that other processes applied once more, so that the next flush makes them
    /// durable even if an earlier flush failed.
    fn rewrite_applied(&self) -> Result<bool> {
        if mutated(Mutant::AppliedElsewhereTrusted) {
            return Ok(true);
        }
        let written = write_page_overlay(self.logging.applied_elsewhere(), &**self.object());
        self.postpone_on_error(written.map(|()| true))
    }

    fn postpone_on_error(&self, applied: Result<bool>) -> Result<bool> {
        match applied {
            Err(error)
                if error.is_lack_of_room()
                    || matches!(error, Error::Io { .. } | Error::LogFull { .. }) =>
            {
                warn!(%error, path = %self.object().path().display(), "commits stay in the log for now");
                Ok(false)
            }
            other => other,
        }
    }

    /// Writes the overlay to the object file, without a flush. Returns false while readers are
    /// present. (One lock serves readers of all commits, so even readers of the newest count.)
    fn apply(&mut self) -> Result<bool> {
        if self.overlay().is_empty() {
            return Ok(true);
        }
        // A page must not reach the file before its record is durable.
        if !mutated(Mutant::ApplyBeforeRecord) {
            self.log_and_flush()?;
        }
        let object = Arc::clone(self.object());
        let _content = match self.holds_content() {
            true => None,
            false => match locks::begin_apply(&*object)? {
                Some(held) => Some(held),
                None => return Ok(false),
            },
        };
        self.committed.write_overlay()?;
        self.logging.note_applied(self.committed.overlay());
        self.committed.clear_overlay();
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
        debug!(path = %self.object().path().display(), sequence = self.sequence(), "checkpoint");
        if !self.try_apply()? || !self.rewrite_applied()? {
            return Ok(false);
        }
        if !mutated(Mutant::ObjectNotFlushedBeforeReset) {
            self.logging.flush_object(&**self.committed.object())?;
        }
        let object = Arc::clone(self.object());
        let Some(_log_lock) = locks::hold_log_for_reset(&*object)? else {
            return Ok(false);
        };
        self.logging.reset(&*object)?;
        self.logging.clear_applied_elsewhere();
        Ok(true)
    }

    /// Ensures that the log has no lines after `length` bytes of the file, which is about to be
    /// truncated there. Otherwise a replay after a crash would overwrite later growth. Returns
    /// false while readers are in the way.
    pub(crate) fn forget_after(&mut self, length: u64) -> Result<bool> {
        if !self.logging.reaches_beyond(length) || mutated(Mutant::TruncatedUnderTheLog) {
            return Ok(true);
        }
        self.checkpoint()
    }

    /// Replaces the object file by a copy with everything applied. Readers keep the old file, and
    /// the log can be emptied. There must be no stores since the last commit.
    pub(super) fn replace_object(&mut self) -> Result<()> {
        let old = Arc::clone(self.object());
        let path = old.path().to_path_buf();
        info!(path = %path.display(), "replacing the object file while it is read");
        let copy_path = Logging::copy_path(&*old);
        self.logging.remove_half_made_copy(&*old)?;
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
        self.switch_to(copy.with_path(&path)?)?;
        // A reader that has the old file open and has not read the log yet must finish first, or
        // notice the replacement.
        let object = Arc::clone(self.object());
        let locks = (locks::hold_log_for_reset(&*old)?, locks::hold_log_for_reset(&*object)?);
        if let (Some(_), Some(_)) = locks {
            self.logging.reset(&*object)?;
        }
        Ok(())
    }

    fn make_copy(&self, copy: &dyn File) -> Result<()> {
        self.committed.copy_to(copy)?;
        if mutated(Mutant::CopyNotFlushed) { Ok(()) } else { copy.sync_data() }
    }

    /// Maps another file that holds the last commit.
    fn switch_to(&mut self, object: Arc<dyn File>) -> Result<()> {
        object.advise_random()?;
        // The caller locked the old file.
        self.set_content_locked(false);
        self.committed.switch_to(object, |object| self.pages.map_all(object))?;
        self.pages.forget_retained();
        Ok(())
    }

    /// Ends the session: makes a checkpoint, and removes the log unless it is permanent. A large
    /// object keeps a small log for the next session. While readers are in the way, the log stays
    /// and has everything.
    pub(crate) fn close(&mut self) -> Result<()> {
        if self.policy != LogPolicy::WhileOpen {
            return self.checkpoint().map(drop);
        }
        self.check_usable()?;
        self.sync()?;
        if !self.logging.has_log() || !self.apply()? {
            return Ok(());
        }
        // If the log is empty, the last checkpoint flushed everything.
        if self.log_bytes() > 0 && !mutated(Mutant::CloseBeforeFlush) {
            self.logging.flush_object(&**self.committed.object())?;
        }
        let object = Arc::clone(self.object());
        let Some(_log_lock) = locks::hold_log_for_reset(&*object)? else {
            return Ok(());
        };
        let large = self.committed.file_length() >= self.settings.log_kept_from_bytes;
        let keep = self.logging.end() && large;
        release_log(&*self.storage, &*object, self.logging.path(), keep)
    }
}
