//! One writer's commits to one object: the commit itself, and rollback.
//!
//! An [`Engine`] joins three states, each owned by a module: the last commit (`committed`), the
//! private pages that the program stores to (`pages`), and the log (`logging`). The module `apply`
//! writes commits to the object file and closes the log. A failed flush poisons the engine: it must
//! never commit again, because the kernel may have dropped the unwritten pages.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tracing::warn;

use super::checksums;
use super::committed::Committed;
use super::locks;
use super::log::LogPosition;
use super::logging::Logging;
use super::overlay::Overlay;
use super::pages::PrivatePages;
use super::record::{Page, RecordBuilder};
use super::settings::{Durability, WhenLogFull, WriteOptions};
use super::suspects::{Suspect, SuspectSearch, Suspects};
use super::target::{Growth, LogPolicy, Span, Target};
use crate::at_fork;
use crate::error::{Error, Result};
use crate::format::{CHECKSUM_UNKNOWN, RegionRecord};
use crate::mutate::{Mutant, mutated};
use crate::storage::{File, Storage};

/// Write-back of at least this much fresh memory starts while its checksums are computed.
const EARLY_WRITE_BACK_BYTES_MIN: u64 = 32 << 20;

/// Commits one writer's changes to one object.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) policy: LogPolicy,
    pub(super) settings: WriteOptions,
    pub(super) committed: Committed,
    pub(super) pages: PrivatePages,
    pub(super) logging: Logging,
    /// Search for suspects, if enabled. A suspect is a word that looks like a pointer to memory
    /// outside the object, and may be a number.
    suspects: Option<Suspects>,
    /// Buffer for the next record.
    record_buffer: Vec<u8>,
    /// The caller holds the content of the object file locked.
    content_locked: bool,
}

impl Engine {
    /// Creates the engine for `target`. Copies the overlay's lines into the private pages.
    pub(crate) fn new(target: Target) -> Engine {
        let logging = Logging::new(
            Arc::clone(&target.storage),
            (target.object_uuid, target.log_path),
            target.log,
            target.sequence,
            &target.overlay,
            target.applied_elsewhere,
        );
        let committed =
            Committed::new(target.mapped, target.overlay, &target.regions, target.file_length);
        Engine {
            storage: target.storage,
            policy: target.policy,
            settings: target.settings,
            pages: PrivatePages::new(target.committed, target.writer_kind, &committed),
            committed,
            logging,
            suspects: None,
            record_buffer: Vec::new(),
            content_locked: false,
        }
    }

    /// Number of the last commit that was written to the log. Commits staged since then share the
    /// next number.
    pub(crate) fn sequence(&self) -> u64 {
        self.logging.sequence()
    }

    /// The object file. Changes when the file is replaced.
    pub(crate) fn object(&self) -> &Arc<dyn File> {
        self.committed.object()
    }

    /// Counter that each apply increments before and after it writes to the file: odd in between.
    pub(crate) fn applies(&self) -> &Arc<AtomicU64> {
        self.committed.applies()
    }

    /// Committed lines that the file lacks: logged or staged.
    pub(crate) fn overlay(&self) -> &Overlay {
        self.committed.overlay()
    }

    /// Position of the log. Differs from an earlier one if the log has advanced.
    pub(crate) fn log_position(&self) -> LogPosition {
        self.logging.position()
    }

    /// Bytes of records in the log.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.logging.bytes()
    }

    /// Commits all stores since the last commit, atomically, with the durability level of the
    /// settings.
    ///
    /// `approve` is called with the suspects found, if any, possibly several times. Its error ends
    /// the commit. `seal` is called if something changed, with the number of the new commit and
    /// page 0, which it updates. Returns false if nothing had changed.
    ///
    /// The numbered steps in the code follow "A commit" in `docs/durability.md`.
    ///
    /// # Errors
    /// `DiskFull`, `LogFull` and other errors before the commit point: nothing happened, and the
    /// changes remain. `DurabilityUnknown` if a flush, or the write of the record, fails: the
    /// session is over, and reopening the object shows whether it has the commit.
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
        let grew = !growth.fresh.is_empty();

        // 1. Scan.
        self.pages.scan();

        // 2. Compare.
        self.committed.set_regions(&growth.regions);
        let buffer = std::mem::take(&mut self.record_buffer);
        let mut record = RecordBuilder::new(growth.file_length, self.settings.full_pages, buffer);
        let mut entries = Vec::new();
        self.pages.compare(&mut self.committed, &mut record, &mut entries, search.as_mut())?;
        let drops_checksum = self.add_given_back(&growth, &mut entries)?;
        if record.is_empty()
            && !grew
            && !drops_checksum
            && self.pages.changes_of_page_zero(&self.committed)? == 0
        {
            self.pages.mark_unchanged();
            return Ok(false);
        }

        // 3. Fresh memory. Its flush comes with the record.
        self.add_fresh(&growth.fresh, &mut entries, search.as_mut())?;
        if let Some(search) = &mut search {
            search.end()?;
        }

        // 4. Seal page 0.
        self.pages.seal_page_zero(self.sequence() + 1, seal);
        entries.push((0, checksums::entry_of(0, self.pages.page_zero())));
        self.committed.add_table_lines(&entries, &mut record)?;
        let changes = self.pages.changes_of_page_zero(&self.committed)?;
        record.push(0, changes, self.pages.page_zero());
        self.logging.reserve(&growth.unreserved, &**self.committed.object(), &record)?;

        // 5. Append: the commit point. At level `Close` the changes stay in memory.
        let is_staged = self.settings.durability == Durability::Close;
        match is_staged {
            true => self.logging.stage(grew),
            false => self.append(&mut record, grew)?,
        }

        // 6. Merge.
        let (bytes, changed) = record.into_parts();
        let bytes = Arc::new(bytes);
        for (page, mask, at) in changed {
            self.logging.add(page, mask, is_staged);
            self.committed.add(page, mask, &bytes, at);
        }
        // Reuse the buffer unless the overlay holds lines in it.
        self.record_buffer = Arc::into_inner(bytes).unwrap_or_default();
        self.committed.set_file_length(growth.file_length);
        self.pages.mark_committed();
        let adopted = self.adopt(growth.fresh).and_then(|()| self.after_commit());
        match adopted {
            Ok(()) => {}
            Err(error @ Error::DurabilityUnknown { .. }) => return Err(error),
            Err(error) => {
                // The commit is complete. Only this session cannot continue.
                warn!(%error, path = %self.object().path().display(), "a session cannot continue after its commit");
                self.logging.end_after(&error);
            }
        }
        Ok(true)
    }

    /// Adds entries for pages whose contents are unspecified from now on. Returns true if the
    /// checksum table of the last commit still has a checksum for one of them.
    fn add_given_back(&self, growth: &Growth, entries: &mut Vec<(u64, u32)>) -> Result<bool> {
        let mut drops_checksum = false;
        for page in growth.given_back.iter().flat_map(|(first, pages)| *first..first + pages) {
            // The heap's chunk map may already record the page as a hole. Then the entry is the
            // only change of this commit.
            drops_checksum = drops_checksum || !self.committed.has_unknown_checksum(page)?;
            entries.push((page, CHECKSUM_UNKNOWN));
        }
        Ok(drops_checksum)
    }

    /// Adds the checksums of fresh memory. Starting write-back can block, so threads do it in the
    /// meantime.
    fn add_fresh(
        &self,
        fresh: &[Span],
        entries: &mut Vec<(u64, u32)>,
        mut search: Option<&mut SuspectSearch<'_>>,
    ) -> Result<()> {
        std::thread::scope(|scope| {
            for span in fresh.iter().filter(|span| span.length >= EARLY_WRITE_BACK_BYTES_MIN) {
                let object = Arc::clone(self.committed.object());
                let write_back = move || object.start_write_back(span.file_offset, span.length);
                // If no thread can be started, the flush writes the memory.
                let _ = std::thread::Builder::new().spawn_scoped(scope, write_back);
            }
            fresh.iter().try_for_each(|span| {
                let search = search.as_deref_mut();
                self.pages.add_fresh_entries(&self.committed, span, entries, search)
            })
        })
    }

    /// Turns fresh ranges into committed ones.
    fn adopt(&mut self, fresh: Vec<Span>) -> Result<()> {
        let object = Arc::clone(self.committed.object());
        self.committed.while_mapping(|| self.pages.adopt(&*object, fresh))
    }

    /// Keeps memory and log within their limits.
    fn after_commit(&mut self) -> Result<()> {
        if let LogPolicy::Permanent { .. } = self.policy {
            return self.try_apply().map(drop);
        }
        if self.log_bytes() > self.settings.log_bytes_max {
            if !self.checkpoint_logged()? && self.settings.when_log_full == WhenLogFull::Replace {
                self.replace_object()?;
            }
        } else if self.logging.since_reset() > self.settings.checkpoint_after {
            self.checkpoint_logged()?;
        }
        let budget = self.settings.hot_bytes_max;
        match self.pages.retained_bytes() {
            // Later stores to retained pages could not be found, so evict all.
            None => self.evict_retained(true),
            // Spare the pages of the last commit if they take at most half of the budget.
            Some((retained, latest)) if retained + self.overlay().bytes() as u64 > budget => {
                self.evict_retained(latest > budget / 2)
            }
            Some(_) => Ok(()),
        }
    }

    /// Notes that the caller locked the content of the object file against readers, or is about to
    /// unlock it. In between, the engine must not lock it: its unlock would end the caller's lock.
    pub(crate) fn set_content_locked(&mut self, locked: bool) {
        self.content_locked = locked;
    }

    /// Returns true if the session or the caller holds the content locked.
    pub(super) fn holds_content(&self) -> bool {
        self.content_locked || self.policy != LogPolicy::WhileOpen
    }

    /// Makes commits search for suspects.
    pub(crate) fn search_for_suspects(&mut self, suspects: Suspects) {
        self.suspects = Some(suspects);
    }

    /// The search for suspects.
    pub(crate) fn suspects(&mut self) -> Option<&mut Suspects> {
        self.suspects.as_mut()
    }

    /// Calls `each` with the address of every private page that differs from the last commit, until
    /// it returns false. The pages found are remembered for the next commit.
    pub(crate) fn for_each_changed_page(&mut self, each: impl FnMut(u64) -> bool) -> Result<()> {
        self.check_usable()?;
        self.pages.for_each_changed(&self.committed, each)
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

    /// Like [`sync`](Engine::sync), but never empties the log.
    ///
    /// Staged commits are written even to a log that exceeds its limit. Emptying it needs an apply,
    /// and only logged commits can be applied.
    ///
    /// # Errors
    /// `LogFull` if the log exceeds its limit, readers keep it from being emptied, and the settings
    /// refuse commits then.
    pub(super) fn log_and_flush(&mut self) -> Result<()> {
        self.check_usable()?;
        self.logging.check_named(self.committed.object())?;
        if self.logging.has_staged() {
            if self.is_full_beside_readers()? {
                return Err(self.log_full(self.log_bytes()));
            }
            self.logging.write_staged(&self.committed, &self.settings)?;
        }
        self.logging.flush(&**self.committed.object())
    }

    /// Discards all stores since the last commit in the committed spans.
    pub(crate) fn rollback(&mut self) -> Result<()> {
        self.check_process()?;
        self.pages.roll_back(&self.committed)
    }

    /// Gives ranges of committed memory (address and length) back to the file system. Their
    /// contents are unspecified in the last commit, and its checksum table says so. Returns false
    /// while readers are present, or if the file system does not support holes.
    ///
    /// # Errors
    /// `DurabilityUnknown` if the flush fails: the disk may still have the old pages, and the next
    /// commit must not take them for zeros.
    pub(crate) fn punch_holes(&mut self, ranges: &[(u64, u64)]) -> Result<bool> {
        if !self.checkpoint()? {
            return Ok(false);
        }
        let object = Arc::clone(self.object());
        let Some(_content) = locks::begin_apply(&*object)? else { return Ok(false) };
        let runs = self.pages.runs_at(ranges);
        let punched = self
            .pages
            .places_of(&runs)
            .try_fold(true, |all, (offset, length)| Ok(all && object.punch_hole(offset, length)?));
        // Also flushes holes punched before an error.
        if !mutated(Mutant::HolesNotFlushed) {
            self.logging.flush_object(&*object)?;
        }
        self.pages.drop_runs(&runs)?;
        punched
    }

    /// Shortens the spans to the regions, which a commit has made shorter.
    pub(crate) fn shorten(&mut self, regions: &[RegionRecord]) {
        self.pages.shorten(regions);
    }

    /// Writes a record to the log after making room for it.
    fn append(&mut self, record: &mut RecordBuilder, grew: bool) -> Result<()> {
        // Check that object and log still have a name. The two calls of `fstat` cost little
        // compared with a flush. At other levels commits are cheaper, so only `sync` and `close`
        // check.
        if self.settings.durability == Durability::Commit && !self.object().is_direct() {
            self.logging.check_named(self.committed.object())?;
        }
        self.make_room(record.bytes_in_log())?;
        match self.logging.write_record(self.committed.object(), &self.settings, record, grew) {
            // The log cannot grow. After emptying it, it has room for records again.
            Err(error)
                if error.is_lack_of_room()
                    && self.log_bytes() > 0
                    && self.checkpoint_logged()? =>
            {
                self.logging.write_record(self.committed.object(), &self.settings, record, grew)
            }
            other => other,
        }
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
        if !full || !refuse || self.holds_content() {
            return Ok(false);
        }
        locks::begin_apply(&**self.object()).map(|alone| alone.is_none())
    }

    fn log_full(&self, used: u64) -> Error {
        Error::LogFull {
            path: self.logging.path().to_path_buf(),
            bytes: used,
            bytes_max: self.settings.log_bytes_max,
        }
    }

    /// Fails in a forked child, which can read its parent's session but not commit.
    fn check_process(&self) -> Result<()> {
        at_fork::refuse_in_child(|| self.object().path().display().to_string())
    }

    /// Fails if an error has ended the session, and in a forked child.
    pub(crate) fn check_usable(&self) -> Result<()> {
        self.check_process()?;
        self.logging.check_usable(&**self.object())
    }
}
