//! One writer's commits to one object: the commit itself, and rollback.
//!
//! An [`Engine`] owns the log, the overlay and the list of changed pages. `apply` writes commits to
//! the file and closes the log; `pages` finds and compares private pages. A failed flush poisons
//! the engine: it must never commit again, because the kernel may have dropped the unwritten pages.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use tracing::warn;

use super::checksums::{self, Tables};
use super::diff::Page;
use super::flusher::Flusher;
use super::folios::Folios;
use super::locks;
use super::log::{Log, LogPosition};
use super::overlay::Overlay;
use super::record::RecordBuilder;
use super::recovery::{announce_log, has_page_zero_of, set_log_required};
use super::runs::{RetainedPages, Run};
use super::settings::{Durability, WhenLogFull, WriteOptions};
use super::suspects::{Suspect, SuspectSearch, Suspects};
use super::target::{Growth, LogPolicy, MappedFile, Span, Target, WriterKind};
use super::unreserved::Unreserved;
use crate::address::{PageScanner, Sharing, View};
use crate::at_fork;
use crate::error::{Error, Result};
use crate::format::{CHECKSUM_UNKNOWN, PAGE_BYTES, RegionRecord};
use crate::mutate::{Mutant, mutated};
use crate::storage::{File, OpenMode, Storage};

/// Write-back of at least this much fresh memory starts while its checksums are computed.
const EARLY_WRITE_BACK_BYTES_MIN: u64 = 32 << 20;

/// Commits one writer's changes to one object.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) object: Arc<dyn File>,
    object_uuid: [u8; 16],
    pub(super) log_path: PathBuf,
    pub(super) policy: LogPolicy,
    pub(super) settings: WriteOptions,
    pub(super) log: Option<Log>,
    pub(super) writer_kind: WriterKind,
    /// Copy of a guest's page 0, made when the current commit began.
    pub(super) page_zero_copied: Option<Box<Page>>,
    pub(super) mapped: MappedFile,
    /// Parts mapped private; the first one begins with page 0 of the file.
    pub(super) spans: Vec<Span>,
    /// Read-only views of the same parts of the file, as they are in the page cache.
    pub(super) views: Vec<View>,
    pub(super) tables: Tables,
    pub(super) overlay: Overlay,
    /// Lines of a permanent log that are not in the overlay. The process that applied them may have
    /// failed to flush them, and the kernel then takes such pages for clean. So a checkpoint writes
    /// all of them again.
    pub(super) applied_elsewhere: Overlay,
    /// Lines by page that are committed at level `Close` and not yet in the log; all are in the
    /// overlay.
    pub(super) staged: BTreeMap<u64, u64>,
    /// True if memory gained by staged commits is not flushed.
    staged_growth: bool,
    /// Bytes of the file at the last commit.
    pub(super) file_length: u64,
    /// No page from this number on is in the log. Otherwise replaying the log would overwrite pages
    /// that grow there after the file was cut.
    pub(super) logged_end: u64,
    pub(super) scanner: PageScanner,
    /// Runs that a scan found and no commit has taken yet.
    pub(super) pending: Vec<Run>,
    pub(super) retained: RetainedPages,
    pub(super) folios: Folios,
    sequence: u64,
    /// Buffer for the next record.
    record_buffer: Vec<u8>,
    /// Reason why no further commit is possible.
    pub(super) poisoned: Option<String>,
    /// Incremented before and after each apply: odd while the file's pages change.
    pub(super) applies: Arc<AtomicU64>,
    /// Search for foreign pointers, if enabled.
    suspects: Option<Suspects>,
    /// Parts of the file without disk space, from the last commit's growth: a record relies on
    /// reserved space.
    unreserved: Arc<Unreserved>,
    pub(super) flusher: Option<Flusher>,
    pub(super) last_checkpoint: Instant,
}

impl Engine {
    /// Creates the engine for `target`. Lays the overlay's lines over the private pages.
    pub(crate) fn new(target: Target) -> Result<Engine> {
        let direct = target.object.is_direct();
        let logged_end = target.overlay.end().max(target.applied_elsewhere.end());
        let mut engine = Engine {
            storage: target.storage,
            object: target.object,
            object_uuid: target.object_uuid,
            log_path: target.log_path,
            policy: target.policy,
            settings: target.settings,
            log: target.log,
            writer_kind: target.writer_kind,
            page_zero_copied: None,
            mapped: target.mapped,
            spans: target.committed,
            views: Vec::new(),
            tables: Tables::of(&target.regions),
            overlay: target.overlay,
            applied_elsewhere: target.applied_elsewhere,
            staged: BTreeMap::new(),
            staged_growth: false,
            file_length: target.file_length,
            logged_end,
            scanner: PageScanner::new(direct),
            pending: Vec::new(),
            retained: RetainedPages::new(!direct),
            folios: Folios::default(),
            sequence: target.sequence,
            record_buffer: Vec::new(),
            poisoned: None,
            applies: Arc::default(),
            suspects: None,
            unreserved: Arc::default(),
            flusher: None,
            last_checkpoint: Instant::now(),
        };
        engine.lay_overlay_over_private_pages()?;
        Ok(engine)
    }

    /// Number of the last commit that is in the log.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The object file. Changes when the file is replaced.
    pub(crate) fn object(&self) -> &Arc<dyn File> {
        &self.object
    }

    /// Number of starts and ends of applies.
    pub(crate) fn applies(&self) -> &Arc<AtomicU64> {
        &self.applies
    }

    /// Lines that are in the log and not in the file.
    pub(crate) fn overlay(&self) -> &Overlay {
        &self.overlay
    }

    /// Position of the log.
    pub(crate) fn log_position(&self) -> LogPosition {
        self.log.as_ref().map(Log::position).unwrap_or_default()
    }

    /// Bytes of records in the log.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.log.as_ref().map_or(0, Log::records_bytes)
    }

    /// Commits all stores since the last commit, atomically, with the durability level of the
    /// settings.
    ///
    /// `approve` is called with the foreign pointers found, if any, possibly several times; its
    /// error ends the commit. `seal` is called if something changed, with the number of the new
    /// commit and page 0, which it updates. Returns false if nothing had changed.
    ///
    /// The numbered steps in the code follow "A commit" in `docs/durability.md`.
    ///
    /// # Errors
    /// `DiskFull`, `LogFull` and other errors before the commit point: nothing happened, and the
    /// changes remain. `DurabilityUnknown` at the commit point: the session is over, and reopening
    /// decides.
    pub(crate) fn commit(
        &mut self,
        growth: Growth,
        mut approve: impl FnMut(Vec<Suspect>) -> Result<()>,
        seal: impl FnOnce(u64, &mut Page),
    ) -> Result<bool> {
        self.check_usable()?;
        let mut suspects = self.suspects.take();
        let search = suspects.as_mut().map(|suspects| {
            suspects.begin(&growth.regions);
            SuspectSearch { suspects, judge: &mut approve }
        });
        let committed = self.commit_changes(growth, search, seal);
        self.suspects = suspects;
        committed
    }

    fn commit_changes(
        &mut self,
        growth: Growth,
        mut search: Option<SuspectSearch<'_>>,
        seal: impl FnOnce(u64, &mut Page),
    ) -> Result<bool> {
        // 1. Scan.
        self.copy_page_zero();
        self.find_changed();

        // 2. Compare.
        self.tables = Tables::of(&growth.regions);
        let buffer = std::mem::take(&mut self.record_buffer);
        let mut record = RecordBuilder::new(growth.file_length, self.settings.full_pages, buffer);
        let mut entries = Vec::new();
        self.compare(&mut record, &mut entries, search.as_mut())?;
        let given_back = growth.given_back.iter().flat_map(|(first, pages)| *first..first + pages);
        let mut forgets = false;
        for page in given_back {
            // The chunk map may record it as a hole already; then this entry is the only change.
            forgets = forgets || !self.has_unknown_checksum(page)?;
            entries.push((page, CHECKSUM_UNKNOWN));
        }
        let is_unchanged = record.is_empty() && growth.fresh.is_empty() && !forgets;
        if is_unchanged && !self.page_zero_changed()? {
            self.retained.keep(std::mem::take(&mut self.pending));
            return Ok(false);
        }

        // 3. Fresh memory. Its flush comes in `write_record`.
        // Starting write-back can block, so threads do it while the checksums are computed.
        let page_zero = std::thread::scope(|scope| {
            let large = |span: &&Span| span.length >= EARLY_WRITE_BACK_BYTES_MIN;
            for span in growth.fresh.iter().filter(large) {
                let object = Arc::clone(&self.object);
                let write_back = move || object.start_write_back(span.file_offset, span.length);
                // If no thread can be started, the flush writes the memory.
                let _ = std::thread::Builder::new().spawn_scoped(scope, write_back);
            }
            for span in &growth.fresh {
                self.add_fresh_entries(span, &mut entries, search.as_mut())?;
            }
            if let Some(search) = &mut search {
                search.end()?;
            }
            // 4. Seal page 0.
            self.seal_page_zero(seal);
            self.add_page_zero_entry(&mut entries);
            self.add_table_lines(&entries, &mut record)?;
            self.changes_of_page_zero()
        })?;
        record.push(0, page_zero, self.page_zero());
        self.unreserved = Arc::clone(&growth.unreserved);
        self.unreserved.reserve(&*self.object, record.page_numbers())?;

        // 5. Append: the commit point. At level `Close` the record stays in memory.
        match self.settings.durability {
            Durability::Close => self.staged_growth |= !growth.fresh.is_empty(),
            Durability::Commit | Durability::Interval(_) => {
                self.append(&mut record, !growth.fresh.is_empty())?;
            }
        }

        // 6. Merge.
        let (bytes, pages) = record.into_parts();
        let bytes = Arc::new(bytes);
        for (page, mask, at) in pages {
            self.logged_end = self.logged_end.max(page + 1);
            self.overlay.add_shared(page, mask, &bytes, at);
            if self.settings.durability == Durability::Close {
                *self.staged.entry(page).or_default() |= mask;
            }
        }
        self.record_buffer = Arc::into_inner(bytes).unwrap_or_default();
        self.file_length = growth.file_length;
        self.retained.committed(std::mem::take(&mut self.pending));
        let adopted = self.adopt(growth).and_then(|()| self.after_commit());
        match adopted {
            Ok(()) => {}
            Err(error @ Error::DurabilityUnknown { .. }) => return Err(error),
            Err(error) => {
                // The commit is in the log; only this session cannot continue.
                warn!(%error, path = %self.object.path().display(), "a session cannot continue after its commit");
                self.poisoned = Some(error.to_string());
            }
        }
        Ok(true)
    }

    /// Makes commits search for foreign pointers.
    pub(crate) fn search_for_suspects(&mut self, suspects: Suspects) {
        self.suspects = Some(suspects);
    }

    /// The search for foreign pointers.
    pub(crate) fn suspects(&mut self) -> Option<&mut Suspects> {
        self.suspects.as_mut()
    }

    /// Makes everything committed so far durable, at any level.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.log_and_flush()?;
        if self.log_bytes() > self.settings.log_bytes_max {
            // Staged commits did not check the log's length. If readers are in the way, the next
            // commit tries again.
            self.checkpoint_logged()?;
        }
        Ok(())
    }

    /// Like [`sync`](Engine::sync), but does not check the log's length.
    ///
    /// Staged commits cannot wait until the log is emptied: that needs an apply, and only logged
    /// commits can be applied.
    pub(super) fn log_and_flush(&mut self) -> Result<()> {
        self.check_usable()?;
        self.check_named()?;
        if !self.staged.is_empty() {
            if self.is_full_beside_readers()? {
                return Err(self.log_full(self.log_bytes()));
            }
            // The file may have become shorter since a page was staged.
            let mut record =
                RecordBuilder::new(self.file_length, self.settings.full_pages, Vec::new());
            for (page, mask) in &self.staged {
                self.logged_end = self.logged_end.max(page + 1);
                let mut image = [0; PAGE_BYTES as usize];
                self.read_stored(*page, &mut image)?;
                self.overlay.patch(*page, &mut image);
                record.push(*page, *mask, &image);
            }
            self.write_record(&mut record, self.staged_growth)?;
            self.staged.clear();
            self.staged_growth = false;
        }
        if let Some(flusher) = &self.flusher {
            flusher.flush().map_err(|e| self.poison(e))?;
        }
        Ok(())
    }

    /// Discards all stores since the last commit in the committed spans.
    pub(crate) fn rollback(&mut self) -> Result<()> {
        self.check_process()?;
        self.find_changed();
        let mut runs = std::mem::take(&mut self.pending);
        if let Some(first) = self.spans.first() {
            runs.push(Run { span: 0, address: first.address, length: PAGE_BYTES });
        }
        self.restore(&runs)
    }

    /// Gives ranges of committed memory (address and length) back to the file system. Their
    /// contents are unspecified in the last commit, and its checksum table says so. Returns false
    /// while readers of an older commit are present, or if the file system does not support holes.
    ///
    /// # Errors
    /// `DurabilityUnknown` if the flush fails: the disk may still have the old pages, and the next
    /// commit must not take them for zeros.
    pub(crate) fn punch_holes(&mut self, ranges: &[(u64, u64)]) -> Result<bool> {
        if !self.checkpoint()? {
            return Ok(false);
        }
        let object = Arc::clone(&self.object);
        let Some(_content) = locks::begin_apply(&*object)? else { return Ok(false) };
        let mut runs = Vec::new();
        for &(address, length) in ranges {
            let place = |s: &Span| address >= s.address && address - s.address < s.length;
            if let Some(span) = self.spans.iter().position(place) {
                runs.push(Run { span, address, length });
            }
        }
        let punched = runs.iter().try_fold(true, |all, run| {
            let span = &self.spans[run.span];
            let offset = span.file_offset + (run.address - span.address);
            Ok(all && object.punch_hole(offset, run.length)?)
        });
        // Also flushes holes punched before an error.
        if !mutated(Mutant::HolesNotFlushed) {
            object.sync_data().map_err(|e| self.poison(e))?;
        }
        self.drop_runs(&runs)?;
        punched
    }

    /// Shortens the spans to the regions, which a commit has made shorter.
    pub(crate) fn shorten(&mut self, regions: &[RegionRecord]) {
        for span in &mut self.spans {
            let region = regions
                .iter()
                .find(|r| span.address >= r.base && span.address - r.base < r.capacity);
            if let Some(region) = region {
                let end = (region.base + region.length).max(span.address);
                span.length = span.length.min(end - span.address);
            }
        }
        self.spans.retain(|span| span.length > 0);
    }

    /// Writes a record to the log after making room for it.
    fn append(&mut self, record: &mut RecordBuilder, grew: bool) -> Result<()> {
        // Two calls of `fstat` cost little compared with a flush. At other levels commits are
        // cheaper, so only `sync` and `close` check.
        if self.settings.durability == Durability::Commit && !self.object.is_direct() {
            self.check_named()?;
        }
        self.make_room(record.bytes_in_log())?;
        match self.write_record(record, grew) {
            // The log cannot grow. After emptying it, it has room for records again.
            Err(error)
                if error.is_lack_of_room()
                    && self.log_bytes() > 0
                    && self.checkpoint_logged()? =>
            {
                self.write_record(record, grew)
            }
            other => other,
        }
    }

    /// Writes a record to the log: the commit point. Flushes gained memory and reserved space
    /// first.
    fn write_record(&mut self, record: &mut RecordBuilder, grew: bool) -> Result<()> {
        let grew = grew || self.unreserved.needs_flush();
        match self.log {
            None => self.begin_log(grew)?,
            Some(_) if grew => self.flush_fresh()?,
            Some(_) => {}
        }
        let interval = match self.settings.durability {
            Durability::Interval(interval) => Some(interval),
            Durability::Commit | Durability::Close => None,
        };
        let Some(log) = &mut self.log else {
            return Err(self.log_missing());
        };
        if let (Some(interval), None) = (interval, &self.flusher) {
            self.flusher = Some(Flusher::start(log, interval)?);
        }
        match log.append(record, interval.is_none()) {
            Ok(()) => {}
            Err(e @ Error::DurabilityUnknown { .. }) => return Err(self.poison(e)),
            Err(e) => return Err(e),
        }
        if let Some(flusher) = &self.flusher {
            flusher.written(log.last_record());
        }
        self.sequence += 1;
        Ok(())
    }

    /// Refuses to commit to removed files: no later opening would find the commit.
    fn check_named(&self) -> Result<()> {
        let log = self.log.as_ref().map(Log::file);
        for file in [Some(&self.object), log].into_iter().flatten() {
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

    /// Empties a log that the next record would make too long, if readers permit.
    fn make_room(&mut self, bytes: u64) -> Result<()> {
        let used = self.log_bytes();
        if used == 0 || used + bytes <= self.settings.log_bytes_max {
            return Ok(());
        }
        let emptied = self.checkpoint_logged()?;
        if !emptied && self.settings.when_log_full == WhenLogFull::Refuse {
            return Err(self.log_full(used));
        }
        Ok(())
    }

    /// Returns true if the log exceeds its limit, readers keep it from being emptied, and the
    /// settings refuse commits then.
    fn is_full_beside_readers(&self) -> Result<bool> {
        let full = self.log_bytes() > self.settings.log_bytes_max;
        let refuse = self.settings.when_log_full == WhenLogFull::Refuse;
        if !full || !refuse || self.policy != LogPolicy::WhileOpen {
            return Ok(false);
        }
        locks::begin_apply(&*self.object).map(|alone| alone.is_none())
    }

    fn log_full(&self, used: u64) -> Error {
        Error::LogFull {
            path: self.log_path.clone(),
            bytes: used,
            bytes_max: self.settings.log_bytes_max,
        }
    }

    /// Flushes gained memory, which must be durable before the record that refers to it.
    fn flush_fresh(&mut self) -> Result<()> {
        if mutated(Mutant::FreshNotFlushed) {
            return Ok(());
        }
        self.object.sync_data().map_err(|e| self.poison(e))?;
        self.unreserved.flushed();
        Ok(())
    }

    /// Finds or creates the log and records it in the object file, durably, before the first
    /// record. If the object file is flushed anyway because it grew, that is one flush.
    fn begin_log(&mut self, grew: bool) -> Result<()> {
        self.remove_half_made_copy()?;
        let log = match self.find_log()? {
            Some(log) => log,
            None => Log::create(&*self.storage, &self.log_path, self.object_uuid, self.sequence)?,
        };
        // The object file itself is durable up to here: creation, recovery and close flushed it. No
        // record refers to the gained memory yet, and a log without records changes nothing.
        if !grew {
            set_log_required(&*self.object, true).map_err(|e| self.poison(e))?;
        } else if mutated(Mutant::LogAnnouncedLate) {
            self.flush_fresh()?;
            announce_log(&*self.object)?;
        } else {
            announce_log(&*self.object)?;
            self.flush_fresh()?;
        }
        self.log = Some(log);
        Ok(())
    }

    /// Finds the log that the last session left, if this session can continue it.
    ///
    /// An unusable log is replaced. The object does not need it, but a process that was killed
    /// during its close may have recorded that in the page cache only, and on disk the object may
    /// still need the log. So that flag must be durable before the log is replaced.
    fn find_log(&mut self) -> Result<Option<Log>> {
        let file = match self.storage.open(&self.log_path, OpenMode::ReadWrite) {
            Err(e) if e.is_missing_file() => return Ok(None),
            Err(Error::NotPermitted { .. }) => None,
            other => Some(other?),
        };
        if let Some(file) = file
            && let Some(log) = self.kept_log(file)?
        {
            return Ok(Some(log));
        }
        if !mutated(Mutant::StaleLogRemovedEarly) {
            set_log_required(&*self.object, false).map_err(|e| self.poison(e))?;
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
    fn kept_log(&mut self, file: Arc<dyn File>) -> Result<Option<Log>> {
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
        if log.sequence() != self.sequence || !known || !has_page_zero_of(&*self.object, &overlay)?
        {
            return Ok(None);
        }
        self.logged_end = self.logged_end.max(overlay.end());
        Ok(Some(log))
    }

    /// Turns fresh ranges into committed ones: stores there are private from now on.
    fn adopt(&mut self, growth: Growth) -> Result<()> {
        let mapped = Arc::clone(&self.mapped);
        let _mapped = mapped.lock().unwrap_or_else(PoisonError::into_inner);
        for span in growth.fresh {
            span.mapping.map(
                &*self.object,
                span.address,
                span.length,
                span.file_offset,
                Sharing::PrivateWritable,
            )?;
            span.mapping.advise_random(span.address, span.length);
            if self.scanner.is_watching() {
                self.scanner.watch(&[(span.address, span.address + span.length)]);
            }
            let neighbour = self.spans.iter_mut().find(|c| {
                Arc::ptr_eq(&c.mapping, &span.mapping) && c.address + c.length == span.address
            });
            match neighbour {
                Some(c) => c.length += span.length,
                None => self.spans.push(span),
            }
        }
        Ok(())
    }

    /// Fails in a forked child, which can read its parent's session but not commit.
    fn check_process(&self) -> Result<()> {
        at_fork::refuse_in_child(|| self.object.path().display().to_string())
    }

    pub(crate) fn check_usable(&self) -> Result<()> {
        self.check_process()?;
        let flush = self.flusher.as_ref().and_then(Flusher::failed);
        match self.poisoned.clone().or(flush) {
            Some(why) => {
                Err(Error::DurabilityUnknown { path: self.object.path().to_path_buf(), why })
            }
            None => Ok(()),
        }
    }

    pub(super) fn poison(&mut self, error: Error) -> Error {
        let why = match error {
            Error::DurabilityUnknown { why, .. } => why,
            other => other.to_string(),
        };
        if !mutated(Mutant::PoisonForgotten) {
            self.poisoned = Some(why.clone());
        }
        Error::DurabilityUnknown { path: self.object.path().to_path_buf(), why }
    }

    fn log_missing(&self) -> Error {
        Error::LogMissing { path: self.object.path().to_path_buf(), log: self.log_path.clone() }
    }

    fn add_page_zero_entry(&self, entries: &mut Vec<(u64, u32)>) {
        entries.push((0, checksums::entry_of(0, self.page_zero())));
    }
}
