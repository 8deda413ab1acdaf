//! What becomes of commits after they are in the log: applied to the object file, checkpointed, and
//! at the end of a session gone from memory and log.
//!
//! Invariants: nothing is applied before it is durable in the log, nor while somebody reads an
//! older commit; the log is reset, or removed, only when the object file was flushed after an
//! apply. Failing to apply loses nothing: overlay, private pages and log stay, and it is tried
//! again.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use tracing::{debug, info, warn};

use super::engine::{Engine, LogPolicy, Span};
use super::locks;
use super::recovery::{let_go_of_log, renew_code, write_page_overlay};
use super::settings::WhenLogFull;
use crate::address::Sharing;
use crate::error::{Error, Result};
use crate::format::PAGE_BYTES;
use crate::mutate::{Mutant, mutated};
use crate::storage::{File, OpenMode, copy_contents, parent_of};

/// Added to the name of an object file's copy until it takes the object's place.
const REPLACEMENT_EXTENSION: &str = "new";

impl Engine {
    /// Keeps memory and log within their bounds.
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
            self.cool(also_latest)?;
        }
        Ok(())
    }

    /// Applies, and gives private pages back: those that the last commit had not, or all.
    fn cool(&mut self, also_latest: bool) -> Result<()> {
        if self.try_apply()? {
            let addresses = self.retained.take(also_latest);
            self.drop_pages(&addresses)?;
        }
        Ok(())
    }

    /// As [`apply`](Engine::apply), but a disk that refuses is no reason to end the session: the
    /// commits are safe in the log.
    fn try_apply(&mut self) -> Result<bool> {
        let applied = self.apply();
        self.or_later(applied)
    }

    /// Writes what others applied: if their flush failed, this one's makes it durable.
    fn apply_anew(&self) -> Result<bool> {
        if mutated(Mutant::AppliedElsewhereTrusted) {
            return Ok(true);
        }
        self.or_later(write_page_overlay(&self.applied_elsewhere, &*self.object).map(|()| true))
    }

    fn or_later(&self, applied: Result<bool>) -> Result<bool> {
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

    /// Writes the overlay to the object file, without a flush. False while readers of an older
    /// commit are there.
    fn apply(&mut self) -> Result<bool> {
        if self.overlay.is_empty() {
            return Ok(true);
        }
        // No page before its record.
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

    /// Makes the object file durable and empties the log. False while readers are in the way.
    pub(crate) fn checkpoint(&mut self) -> Result<bool> {
        self.check_usable()?;
        self.sync()?;
        self.checkpoint_logged()
    }

    /// The same for what is in the log already.
    pub(super) fn checkpoint_logged(&mut self) -> Result<bool> {
        if self.log_bytes() == 0 {
            return Ok(true);
        }
        debug!(path = %self.object.path().display(), sequence = self.sequence(), "checkpoint");
        if !self.try_apply()? || !self.apply_anew()? {
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

    /// Makes sure that nothing in the log is for what lies behind `length` bytes of the file, which
    /// is about to be cut there: replayed after a crash, it would lie over what has grown there
    /// since. False while readers are in the way of that.
    pub(crate) fn forget_behind(&mut self, length: u64) -> Result<bool> {
        if self.logged_end <= length / PAGE_BYTES || mutated(Mutant::CutUnderTheLog) {
            return Ok(true);
        }
        self.checkpoint()
    }

    /// Puts a copy of the object file, with everything applied, in its place: readers keep the old
    /// file, and the log can be emptied. Nothing may have been stored since the last commit.
    fn replace_object(&mut self) -> Result<()> {
        let path = self.object.path().to_path_buf();
        info!(path = %path.display(), "replacing the object file beside its readers");
        let copy_path = path.with_extension(REPLACEMENT_EXTENSION);
        self.remove_half_made_copy()?;
        self.sync()?;
        if self.log_bytes() == 0 {
            // The readers left meanwhile.
            return Ok(());
        }
        let copy = self.storage.open(&copy_path, OpenMode::CreateNew)?;
        let copied = self.make_copy(&*copy);
        if let Err(error) = copied {
            let _ = self.storage.remove(&copy_path);
            if !error.is_lack_of_room() && !matches!(error, Error::Io { .. }) {
                return Err(error);
            }
            warn!(%error, "no copy of the object file: the log grows past its bound");
            return Ok(());
        }
        // Nobody knows the copy yet: the lock is there when somebody does.
        copy.try_lock_for_good(locks::WRITER_BYTE)?;
        self.storage.rename(&copy_path, &path)?;
        if !mutated(Mutant::ReplacementNotFlushed) {
            self.storage.sync_directory(&parent_of(&path))?;
        }
        let old = self.switch_to(copy.with_path(&path)?)?;
        // Who has the old file open but not read the log yet has to be through, or find out.
        let object = Arc::clone(&self.object);
        let locks = (locks::hold_log_for_reset(&*old)?, locks::hold_log_for_reset(&*object)?);
        if let (Some(_), Some(_)) = locks {
            self.reset_log()?;
        }
        Ok(())
    }

    /// What a kill in the middle of [`replace_object`](Engine::replace_object) left.
    pub(super) fn remove_half_made_copy(&self) -> Result<()> {
        let path = self.object.path().with_extension(REPLACEMENT_EXTENSION);
        match self.storage.remove(&path) {
            Err(e) if !e.is_missing_file() => Err(e),
            _ => Ok(()),
        }
    }

    fn make_copy(&self, copy: &dyn File) -> Result<()> {
        copy.advise_random()?;
        // What lies behind the last commit is left to the readers of the old file: growing takes
        // what was reserved for this file alone, and no block that is shared.
        copy_contents(&*self.object, copy, self.file_length)?;
        write_page_overlay(&self.overlay, copy)?;
        if mutated(Mutant::CopyNotFlushed) { Ok(()) } else { copy.sync_data() }
    }

    /// Maps another file that holds the last commit. Gives the old one.
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

    /// Ends the session: checkpoint, and the log goes unless it is permanent. While readers are in
    /// the way the log stays, and has everything.
    pub(crate) fn close(&mut self) -> Result<()> {
        if self.policy != LogPolicy::WhileOpen {
            return self.checkpoint().map(drop);
        }
        self.check_usable()?;
        self.sync()?;
        if self.log.is_none() || !self.apply()? {
            return Ok(());
        }
        // A checkpoint flushed all that an empty log had.
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
        let_go_of_log(&*self.storage, &*object, &self.log_path, keep)
    }
}
