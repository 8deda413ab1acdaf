//! The log of one session: its records, commits that are staged for it, and the failure that ends
//! all further commits.
//!
//! Invariants: memory that a record refers to is flushed before the record. `log_required` is
//! durable in the object file before the first record is. After a failed flush nothing is ever
//! committed again, because the kernel may have dropped the unwritten pages.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::committed::Committed;
use super::flusher::Flusher;
use super::log::{Log, LogPosition};
use super::overlay::Overlay;
use super::record::RecordBuilder;
use super::recovery::{announce_log, has_page_zero_of, renew_code, set_log_required};
use super::settings::{Durability, WriteOptions};
use super::unreserved::Unreserved;
use crate::error::{Error, Result};
use crate::format::PAGE_BYTES;
use crate::mutate::{Mutant, mutated};
use crate::storage::{File, OpenMode, Storage};

/// File name extension of an object file's copy until it replaces the object.
const REPLACEMENT_EXTENSION: &str = "new";

/// The log of one writer's session.
#[derive(Debug)]
pub(super) struct Logging {
    storage: Arc<dyn Storage>,
    object_uuid: [u8; 16],
    log_path: PathBuf,
    log: Option<Log>,
    /// Number of the last commit that is in the log.
    sequence: u64,
    flusher: Option<Flusher>,
    /// No page from this number on is in the log. The file may be cut only at or after this page: a
    /// replay would overwrite later growth in place of logged pages.
    logged_end: u64,
    /// Lines of a permanent log that are not in the overlay. The process that applied them may have
    /// failed to flush them, and the kernel then takes such pages for clean. So a checkpoint writes
    /// all of them again.
    applied_elsewhere: Overlay,
    /// Lines by page that are committed at level `Close` and not yet in the log; all are in the
    /// overlay.
    staged: BTreeMap<u64, u64>,
    /// True if memory gained by staged commits is not flushed.
    staged_growth: bool,
    /// Parts of the file without disk space, from the last commit's growth: a record relies on
    /// reserved space.
    unreserved: Arc<Unreserved>,
    last_reset: Instant,
    /// Reason why no further commit is possible.
    poisoned: Option<String>,
}

impl Logging {
    /// Goes on with the log of an object, if there is one. `sequence` is the number of the last
    /// commit, and `overlay` has its lines that the file lacks.
    pub(super) fn new(
        storage: Arc<dyn Storage>,
        (object_uuid, log_path): ([u8; 16], PathBuf),
        log: Option<Log>,
        sequence: u64,
        overlay: &Overlay,
        applied_elsewhere: Overlay,
    ) -> Logging {
        Logging {
            storage,
            object_uuid,
            log_path,
            log,
            sequence,
            flusher: None,
            logged_end: overlay.end().max(applied_elsewhere.end()),
            applied_elsewhere,
            staged: BTreeMap::new(),
            staged_growth: false,
            unreserved: Arc::default(),
            last_reset: Instant::now(),
            poisoned: None,
        }
    }

    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    pub(super) fn position(&self) -> LogPosition {
        self.log.as_ref().map(Log::position).unwrap_or_default()
    }

    /// Bytes of records in the log.
    pub(super) fn bytes(&self) -> u64 {
        self.log.as_ref().map_or(0, Log::records_bytes)
    }

    pub(super) fn path(&self) -> &Path {
        &self.log_path
    }

    pub(super) fn has_log(&self) -> bool {
        self.log.is_some()
    }

    /// Ends the use of the log. Returns true if the next session can continue it at little cost.
    pub(super) fn end(&mut self) -> bool {
        self.flusher = None;
        self.log.take().is_some_and(|log| log.is_small())
    }

    pub(super) fn since_reset(&self) -> Duration {
        self.last_reset.elapsed()
    }

    /// Returns true if the log may have lines of pages after `length` bytes of the file.
    pub(super) fn reaches_beyond(&self, length: u64) -> bool {
        self.logged_end > length / PAGE_BYTES
    }

    /// Reserves disk space for the pages of a record.
    pub(super) fn reserve(
        &mut self,
        unreserved: &Arc<Unreserved>,
        object: &dyn File,
        record: &RecordBuilder,
    ) -> Result<()> {
        self.unreserved = Arc::clone(unreserved);
        self.unreserved.reserve(object, record.page_numbers())
    }

    /// Notes lines of a page that are in the log, or staged.
    pub(super) fn add(&mut self, page: u64, mask: u64, is_staged: bool) {
        self.logged_end = self.logged_end.max(page + 1);
        if is_staged {
            *self.staged.entry(page).or_default() |= mask;
        }
    }

    /// Stages a commit: the record stays in memory.
    pub(super) fn stage(&mut self, grew: bool) {
        self.staged_growth |= grew;
    }

    pub(super) fn has_staged(&self) -> bool {
        !self.staged.is_empty()
    }

    /// Writes everything staged to the log, as one record.
    pub(super) fn write_staged(
        &mut self,
        committed: &Committed,
        settings: &WriteOptions,
    ) -> Result<()> {
        // The file may have become shorter since a page was staged.
        let length = committed.file_length();
        let mut record = RecordBuilder::new(length, settings.full_pages, Vec::new());
        for (page, mask) in &self.staged {
            self.logged_end = self.logged_end.max(page + 1);
            let mut image = [0; PAGE_BYTES as usize];
            committed.read(*page, &mut image)?;
            record.push(*page, *mask, &image);
        }
        self.write_record(committed.object(), settings, &mut record, self.staged_growth)?;
        self.staged.clear();
        self.staged_growth = false;
        Ok(())
    }

    /// Writes a record to the log: the commit point. If memory was gained or space reserved,
    /// flushes the object file first.
    pub(super) fn write_record(
        &mut self,
        object: &Arc<dyn File>,
        settings: &WriteOptions,
        record: &mut RecordBuilder,
        grew: bool,
    ) -> Result<()> {
        let grew = grew || self.unreserved.needs_flush();
        match self.log {
            None => self.begin_log(&**object, grew)?,
            Some(_) if grew => self.flush_fresh(&**object)?,
            Some(_) => {}
        }
        let interval = match settings.durability {
            Durability::Interval(interval) => Some(interval),
            Durability::Commit | Durability::Close => None,
        };
        let Some(log) = &mut self.log else {
            let (path, log) = (object.path().to_path_buf(), self.log_path.clone());
            return Err(Error::LogMissing { path, log });
        };
        if let (Some(interval), None) = (interval, &self.flusher) {
            self.flusher = Some(Flusher::start(log, interval)?);
        }
        debug_assert_eq!(log.sequence(), self.sequence, "the record follows the last commit");
        match log.append(record, interval.is_none()) {
            Ok(()) => {}
            Err(e @ Error::DurabilityUnknown { .. }) => return Err(self.poison(&**object, e)),
            Err(e) => return Err(e),
        }
        if let Some(flusher) = &self.flusher {
            flusher.written(log.last_record());
        }
        self.sequence += 1;
        Ok(())
    }

    /// Flushes records that the flusher has not flushed yet.
    pub(super) fn flush(&mut self, object: &dyn File) -> Result<()> {
        match &self.flusher {
            Some(flusher) => flusher.flush().map_err(|e| self.poison(object, e)),
            None => Ok(()),
        }
    }

    /// Flushes gained memory, which must be durable before the record that refers to it.
    fn flush_fresh(&mut self, object: &dyn File) -> Result<()> {
        if mutated(Mutant::FreshNotFlushed) {
            return Ok(());
        }
        self.flush_object(object)?;
        self.unreserved.flushed();
        Ok(())
    }

    /// Flushes the object file.
    pub(super) fn flush_object(&mut self, object: &dyn File) -> Result<()> {
        object.sync_data().map_err(|e| self.poison(object, e))
    }

    /// Finds or creates the log and records it in the object file, durably, before the first
    /// record. If the object file is flushed anyway because it grew, that is one flush.
    fn begin_log(&mut self, object: &dyn File, grew: bool) -> Result<()> {
        self.remove_half_made_copy(object)?;
        let log = match self.find_log(object)? {
            Some(log) => log,
            None => Log::create(&*self.storage, &self.log_path, self.object_uuid, self.sequence)?,
        };
        // The object file itself is durable up to here: creation, recovery and close flushed it. No
        // record refers to the gained memory yet, and a log without records changes nothing.
        if !grew {
            set_log_required(object, true).map_err(|e| self.poison(object, e))?;
        } else if mutated(Mutant::LogAnnouncedLate) {
            self.flush_fresh(object)?;
            announce_log(object)?;
        } else {
            announce_log(object)?;
            self.flush_fresh(object)?;
        }
        self.log = Some(log);
        Ok(())
    }

    /// Finds the log that the last session left, if this session can continue it.
    ///
    /// An unusable log is replaced. The object does not need it, but a process that was killed
    /// during its close may have recorded that in the page cache only, and on disk the object may
    /// still need the log. So that flag must be durable before the log is replaced.
    fn find_log(&mut self, object: &dyn File) -> Result<Option<Log>> {
        let file = match self.storage.open(&self.log_path, OpenMode::ReadWrite) {
            Err(e) if e.is_missing_file() => return Ok(None),
            Err(Error::NotPermitted { .. }) => None,
            other => Some(other?),
        };
        if let Some(file) = file
            && let Some(log) = self.kept_log(object, file)?
        {
            return Ok(Some(log));
        }
        if !mutated(Mutant::StaleLogRemovedEarly) {
            set_log_required(object, false).map_err(|e| self.poison(object, e))?;
        }
        Ok(None)
    }

    /// Opens a log whose last record belongs to the object file's commit: the next record follows
    /// it.
    ///
    /// Neither its records nor the cleared flag in the file need a flush. If the disk still has the
    /// flag set, replaying the log changes nothing. The log *was* needed once, which was recorded
    /// only after log and name were durable, and its records were durable when they were applied.
    /// None of that is certain for a log of the first generation without records: the process that
    /// created it may have been killed before the flush. (The header of a later generation without
    /// records is flushed before its first record, as always.)
    fn kept_log(&mut self, object: &dyn File, file: Arc<dyn File>) -> Result<Option<Log>> {
        let (log, commits) = match Log::open(file, self.object_uuid, self.sequence) {
            Ok(opened) => opened,
            Err(error @ Error::Io { .. }) => return Err(error),
            Err(_) => return Ok(None),
        };
        if log.is_old() {
            return Ok(None);
        }
        let known = log.was_needed() || mutated(Mutant::NewLogTrustedUnflushed);
        let overlay = Overlay::of_commits(&commits);
        if log.sequence() != self.sequence || !known || !has_page_zero_of(object, &overlay)? {
            return Ok(None);
        }
        self.logged_end = self.logged_end.max(overlay.end());
        Ok(Some(log))
    }

    /// Refuses to commit to removed files: no later opening would find the commit.
    pub(super) fn check_named(&self, object: &Arc<dyn File>) -> Result<()> {
        let log = self.log.as_ref().map(Log::file);
        for file in [Some(object), log].into_iter().flatten() {
            if !file.has_a_name()? {
                return Err(Error::Io {
                    path: file.path().to_path_buf(),
                    doing: "commit to",
                    source: std::io::Error::other(
                        "the file was removed while it was open; copy what you need out of the session, then restore the object from a backup",
                    ),
                });
            }
        }
        Ok(())
    }

    /// Lines that another process applied and this session did not flush, with the newer lines that
    /// this session applied over them.
    pub(super) fn applied_elsewhere(&self) -> &Overlay {
        &self.applied_elsewhere
    }

    /// Notes that the lines of an overlay were applied. If a checkpoint has to write the lines of
    /// another process again, it must write these with them, because they are newer.
    pub(super) fn note_applied(&mut self, overlay: &Overlay) {
        if !self.applied_elsewhere.is_empty() {
            self.applied_elsewhere.add_all(overlay);
        }
    }

    /// Empties the log. The object file has all of its commits durably.
    pub(super) fn reset(&mut self, object: &dyn File) -> Result<()> {
        self.last_reset = Instant::now();
        let renewed = self.log.as_ref().map_or(Ok(()), |log| renew_code(object, log));
        renewed.map_err(|e| self.poison(object, e))?;
        if let Some(Err(error)) = self.log.as_mut().map(Log::reset) {
            return Err(self.poison(object, error));
        }
        self.logged_end = 0;
        Ok(())
    }

    /// Forgets the lines that other processes applied: they are durable in the object file.
    pub(super) fn clear_applied_elsewhere(&mut self) {
        self.applied_elsewhere.clear();
    }

    /// Path of a copy of the object file until it replaces the object.
    pub(super) fn copy_path(object: &dyn File) -> PathBuf {
        object.path().with_extension(REPLACEMENT_EXTENSION)
    }

    /// Removes the copy that a kill during a replacement of the object file left.
    pub(super) fn remove_half_made_copy(&self, object: &dyn File) -> Result<()> {
        match self.storage.remove(&Logging::copy_path(object)) {
            Err(e) if !e.is_missing_file() => Err(e),
            _ => Ok(()),
        }
    }

    /// Fails if no commit is possible any more.
    pub(super) fn check_usable(&self, object: &dyn File) -> Result<()> {
        let flush = self.flusher.as_ref().and_then(Flusher::failed);
        match self.poisoned.clone().or(flush) {
            Some(why) => Err(Error::DurabilityUnknown { path: object.path().to_path_buf(), why }),
            None => Ok(()),
        }
    }

    /// Ends the session after a failed flush, and returns the error for it.
    pub(super) fn poison(&mut self, object: &dyn File, error: Error) -> Error {
        let why = match error {
            Error::DurabilityUnknown { why, .. } => why,
            other => other.to_string(),
        };
        if !mutated(Mutant::PoisonForgotten) {
            self.poisoned = Some(why.clone());
        }
        Error::DurabilityUnknown { path: object.path().to_path_buf(), why }
    }

    /// Ends the session after a commit that is in the log and cannot be followed by another.
    pub(super) fn end_after(&mut self, error: &Error) {
        self.poisoned = Some(error.to_string());
    }
}
