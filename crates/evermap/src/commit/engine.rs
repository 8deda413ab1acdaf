//! One writer's commits to one object: what a commit does up to its end, and rollback.
//!
//! What happens to commits afterwards (apply, checkpoint, close) is in `apply`; which pages are
//! private and what they are compared with, in `pages`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tracing::warn;

use super::checksums::{self, Tables};
use super::diff::Page;
use super::flusher::Flusher;
use super::folios::Folios;
use super::locks;
use super::log::{Log, LogPosition};
use super::overlay::Overlay;
use super::pages::{RetainedPages, Run};
use super::record::RecordBuilder;
use super::recovery::{announce_log, has_page_zero_of, set_log_required};
use super::settings::{Durability, WhenLogFull, WriteOptions};
use super::suspects::{Look, Suspect, Suspects};
use super::unreserved::Unreserved;
use crate::address::{Mapping, PageScanner, Sharing, View};
use crate::at_fork;
use crate::error::{Error, Result};
use crate::format::{CHECKSUM_UNKNOWN, PAGE_BYTES, RegionRecord};
use crate::mutate::{Mutant, mutated};
use crate::storage::{File, OpenMode, Storage};

/// Fresh memory of at least this many bytes is on its way to the disk while its checksums are
/// computed.
const WRITTEN_MEANWHILE_BYTES_MIN: u64 = 32 << 20;

/// The file that an object's memory is mapped from. Locked while mappings change to another file, or
/// to another kind, so that a fork on another thread sees the one or the other.
pub(crate) type MappedFile = Arc<Mutex<Arc<dyn File>>>;

/// A contiguous part of the file at a contiguous range of addresses.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) address: u64,
    pub(crate) file_offset: u64,
    pub(crate) length: u64,
}

/// Whether the log outlives the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogPolicy {
    /// Made at the first commit, removed at close. Readers may come beside the writer.
    WhileOpen,
    /// Kept beside the object for good: many short sessions pay for it once. The session holds the
    /// content lock and applies each commit at once. What the log holds is replayed when the object
    /// is opened for writing, unless `applied` says that this process has seen that done: from
    /// then on there was no power cut, so a page that was applied is still what everybody reads.
    Permanent { applied: bool },
}

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
    /// Page 0 as it was when the commit that is going on began, of a guest's memory.
    pub(super) page_zero_copied: Option<Box<Page>>,
    pub(super) mapped: MappedFile,
    /// What is mapped private; the first one begins with page 0 of the file.
    pub(super) spans: Vec<Span>,
    /// The same parts of the file as they are in the kernel's cache.
    pub(super) views: Vec<View>,
    pub(super) tables: Tables,
    pub(super) overlay: Overlay,
    /// What a log that is kept for good has beyond the overlay. Whoever applied it may have failed
    /// to flush it, and the kernel takes such pages for clean: a checkpoint writes all of it anew.
    pub(super) applied_elsewhere: Overlay,
    /// Committed at level `Close` and not in the log yet: lines by page, all in the overlay.
    pub(super) staged: BTreeMap<u64, u64>,
    /// Memory that staged commits gained is not flushed.
    staged_growth: bool,
    /// Bytes of the file at the last commit.
    pub(super) file_length: u64,
    /// No page from this number on is in the log: lines there would be replayed over what grows
    /// there after the file was cut.
    pub(super) logged_end: u64,
    pub(super) scanner: PageScanner,
    /// Runs that a scan found and no commit has taken yet.
    pub(super) pending: Vec<Run>,
    pub(super) retained: RetainedPages,
    pub(super) folios: Folios,
    sequence: u64,
    /// For the next record.
    record_buffer: Vec<u8>,
    /// Why nothing may be committed any more.
    pub(super) poisoned: Option<String>,
    /// Counted up before and after each apply: odd while the file's pages change.
    pub(super) applies: Arc<AtomicU64>,
    /// What looks for words that lead out of the object, if it is to be looked for.
    suspects: Option<Suspects>,
    /// As the last commit's growth had it: space of the file that a record relies on.
    unreserved: Arc<Unreserved>,
    pub(super) flusher: Option<Flusher>,
    pub(super) last_checkpoint: Instant,
}

/// The object that an [`Engine`] commits to.
pub(crate) struct Target {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) object: Arc<dyn File>,
    pub(crate) object_uuid: [u8; 16],
    pub(crate) log_path: PathBuf,
    pub(crate) policy: LogPolicy,
    pub(crate) settings: WriteOptions,
    /// The log that is there already.
    pub(crate) log: Option<Log>,
    /// What it has and the file lacks.
    pub(crate) overlay: Overlay,
    /// Lines of the log that are applied already, but were not flushed by this session.
    pub(crate) applied_elsewhere: Overlay,
    pub(crate) mapped: MappedFile,
    /// What is mapped private; the first span begins with page 0 of the file.
    pub(crate) committed: Vec<Span>,
    pub(crate) regions: Vec<RegionRecord>,
    pub(crate) file_length: u64,
    /// Who stores into the mapped memory.
    pub(crate) writer_kind: WriterKind,
    /// The commit that the file and the log hold.
    pub(crate) sequence: u64,
}

/// Whose stores the mapped memory sees while a commit looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriterKind {
    /// Nobody's: who calls `commit` has stopped every writer, as Rust's borrows see to. Pages are
    /// looked at where they are.
    Host,
    /// Maybe those of a guest's threads, which nobody stops. Each page is copied and looked at once:
    /// what is logged is then what its checksum says, whatever they store meanwhile.
    Guest,
}

/// What a commit is to contain besides the changed pages of the committed spans.
pub(crate) struct Growth {
    /// Ranges mapped shared since the last commit.
    pub(crate) fresh: Vec<Span>,
    /// Bytes the file has now.
    pub(crate) file_length: u64,
    /// The regions after the commit.
    pub(crate) regions: Vec<RegionRecord>,
    /// Pages of the file whose contents mean nothing from now on: number of the first, and how many.
    pub(crate) given_back: Vec<(u64, u64)>,
    /// What of the file has no disk space yet.
    pub(crate) unreserved: Arc<Unreserved>,
}

impl Engine {
    /// An engine for what `target` describes. When the overlay is not empty, its lines are laid
    /// over the private pages.
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

    /// Number of the last commit that left this process.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The object file, which is another one after it was replaced.
    pub(crate) fn object(&self) -> &Arc<dyn File> {
        &self.object
    }

    /// A count of the beginnings and ends of applies.
    pub(crate) fn applies(&self) -> &Arc<AtomicU64> {
        &self.applies
    }

    /// What the log has and the file lacks.
    pub(crate) fn overlay(&self) -> &Overlay {
        &self.overlay
    }

    /// Where the log stands.
    pub(crate) fn log_position(&self) -> LogPosition {
        self.log.as_ref().map(Log::position).unwrap_or_default()
    }

    /// Bytes of records in the log.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.log.as_ref().map_or(0, Log::records_bytes)
    }

    /// Makes everything stored since the last commit part of the object, at once, and durably at
    /// the level that was chosen.
    ///
    /// `approve` is called with the words found that lead out of the object, if any, once or more often;
    /// its error ends the commit. `seal` is called when something changed, with the new commit's number and page 0,
    /// which it brings up to date. Returns false when nothing had changed.
    ///
    /// # Errors
    /// `DiskFull`, `LogFull` and the like before the commit point: nothing happened, the changes
    /// are still there. `DurabilityUnknown` at it: the session is over, reopening decides.
    pub(crate) fn commit(
        &mut self,
        growth: Growth,
        mut approve: impl FnMut(Vec<Suspect>) -> Result<()>,
        seal: impl FnOnce(u64, &mut Page),
    ) -> Result<bool> {
        self.check_usable()?;
        let mut suspects = self.suspects.take();
        let look = suspects.as_mut().map(|suspects| {
            suspects.begin(&growth.regions);
            Look { suspects, judge: &mut approve }
        });
        let committed = self.commit_looking(growth, look, seal);
        self.suspects = suspects;
        committed
    }

    fn commit_looking(
        &mut self,
        growth: Growth,
        mut look: Option<Look<'_>>,
        seal: impl FnOnce(u64, &mut Page),
    ) -> Result<bool> {
        self.copy_page_zero();
        self.find_changed();
        self.tables = Tables::of(&growth.regions);
        let memory = std::mem::take(&mut self.record_buffer);
        let mut record = RecordBuilder::new(growth.file_length, self.settings.full_pages, memory);
        let mut entries = Vec::new();
        self.compare(&mut record, &mut entries, look.as_mut())?;
        let given_back = growth.given_back.iter().flat_map(|(first, pages)| *first..first + pages);
        let mut forgets = false;
        for page in given_back {
            // The chunk map may have it as a hole already: then this entry is all that changes.
            forgets = forgets || !self.has_unknown_checksum(page)?;
            entries.push((page, CHECKSUM_UNKNOWN));
        }
        let is_unchanged = record.is_empty() && growth.fresh.is_empty() && !forgets;
        if is_unchanged && !self.page_zero_changed()? {
            self.retained.keep(std::mem::take(&mut self.pending));
            return Ok(false);
        }
        // Handing bytes to the disk waits for the disk: it does its part while checksums are made.
        let page_zero = std::thread::scope(|scope| {
            let large = |span: &&Span| span.length >= WRITTEN_MEANWHILE_BYTES_MIN;
            for span in growth.fresh.iter().filter(large) {
                let object = Arc::clone(&self.object);
                let write_back = move || object.start_write_back(span.file_offset, span.length);
                // Without a thread the flush does it.
                let _ = std::thread::Builder::new().spawn_scoped(scope, write_back);
            }
            for span in &growth.fresh {
                self.add_fresh_entries(span, &mut entries, look.as_mut())?;
            }
            if let Some(look) = &mut look {
                look.end()?;
            }
            self.seal_page_zero(seal);
            self.add_page_zero_entry(&mut entries);
            self.add_table_lines(&entries, &mut record)?;
            self.changes_of_page_zero()
        })?;
        record.push(0, page_zero, self.page_zero());
        self.unreserved = Arc::clone(&growth.unreserved);
        self.unreserved.reserve(&*self.object, record.page_numbers())?;

        match self.settings.durability {
            Durability::Close => self.staged_growth |= !growth.fresh.is_empty(),
            Durability::Commit | Durability::Interval(_) => {
                self.append(&mut record, !growth.fresh.is_empty())?;
            }
        }
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
                // The commit is in the log; only this session cannot go on.
                warn!(%error, path = %self.object.path().display(), "cannot go on after a commit");
                self.poisoned = Some(error.to_string());
            }
        }
        Ok(true)
    }

    /// Has commits look for words that lead out of the object.
    pub(crate) fn look_for_suspects(&mut self, suspects: Suspects) {
        self.suspects = Some(suspects);
    }

    /// What looks for them.
    pub(crate) fn suspects(&mut self) -> Option<&mut Suspects> {
        self.suspects.as_mut()
    }

    /// Makes everything committed so far durable, whatever the level.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.log_and_flush()?;
        if self.log_bytes() > self.settings.log_bytes_max {
            // Staged commits had no room made for them. Readers may be in the way: the next
            // commit sees to that.
            self.checkpoint_logged()?;
        }
        Ok(())
    }

    /// The same without a look at how long the log has become.
    ///
    /// What is staged cannot wait for the log to be emptied: that takes an apply, which is for what
    /// is in the log only.
    pub(super) fn log_and_flush(&mut self) -> Result<()> {
        self.check_usable()?;
        self.check_named()?;
        if !self.staged.is_empty() {
            if self.is_full_beside_readers()? {
                return Err(self.log_full(self.log_bytes()));
            }
            // The file may have got shorter since a page was staged.
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

    /// Forgets everything stored since the last commit in the committed spans.
    pub(crate) fn rollback(&mut self) -> Result<()> {
        self.check_process()?;
        self.find_changed();
        let mut runs = std::mem::take(&mut self.pending);
        if let Some(first) = self.spans.first() {
            runs.push(Run { span: 0, address: first.address, length: PAGE_BYTES });
        }
        self.restore(&runs)
    }

    /// Gives ranges of committed memory back to the file system, by address and length: nothing in
    /// them means anything in the last commit, whose checksum table says so. False while readers of
    /// an older commit are there, or where the file system cannot.
    ///
    /// # Errors
    /// `DurabilityUnknown` when the flush fails: a page that the disk still has as it was must not
    /// be taken for zeros by the next commit.
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
        // Also what was punched before an error.
        if !mutated(Mutant::HolesNotFlushed) {
            object.sync_data().map_err(|e| self.poison(e))?;
        }
        self.drop_runs(&runs)?;
        punched
    }

    /// Forgets what lies behind the regions, which a commit has made shorter.
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

    /// Writes a record to the log, in which room is made for it first.
    fn append(&mut self, record: &mut RecordBuilder, grew: bool) -> Result<()> {
        // Two calls of `fstat`, little beside a flush of the disk. Other commits are cheaper, so
        // only `sync` and the end of their session check.
        if self.settings.durability == Durability::Commit && !self.object.is_direct() {
            self.check_named()?;
        }
        self.make_room(record.bytes_in_log())?;
        match self.write_record(record, grew) {
            // The log cannot grow. Emptied, it has room for what it had room for before.
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

    /// Writes a record to the log: the commit point. Grown memory and reserved space are flushed before.
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

    /// Refuses to commit to files that were removed: no later opening would find the commit.
    fn check_named(&self) -> Result<()> {
        let log = self.log.as_ref().map(Log::file);
        for file in [Some(&self.object), log].into_iter().flatten() {
            if !file.has_a_name()? {
                return Err(Error::Io {
                    path: file.path().to_path_buf(),
                    doing: "commit to",
                    source: std::io::Error::other(
                        "the file was removed while it was open; copy what is needed out of the session, then restore the object from a backup",
                    ),
                });
            }
        }
        Ok(())
    }

    /// Before a record is written: a log that would outgrow its bound is emptied first, if readers
    /// let it be.
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

    /// Is the log past its bound, and somebody there who keeps it from being emptied, where that is
    /// a reason to refuse?
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

    /// Memory that the object gained has to be durable before the record that speaks of it.
    fn flush_fresh(&mut self) -> Result<()> {
        if mutated(Mutant::FreshNotFlushed) {
            return Ok(());
        }
        self.object.sync_data().map_err(|e| self.poison(e))?;
        self.unreserved.flushed();
        Ok(())
    }

    /// Finds a log or makes one, and says so in the object file, durably, before the first record.
    /// Where the object file is flushed anyway because it grew, that is one flush.
    fn begin_log(&mut self, grew: bool) -> Result<()> {
        self.remove_half_made_copy()?;
        let log = match self.find_log()? {
            Some(log) => log,
            None => Log::create(&*self.storage, &self.log_path, self.object_uuid, self.sequence)?,
        };
        // The object file itself is durable up to here: creation, recovery and close saw to it. Of
        // what it gained no record speaks yet: a log that ends before it is as good as none.
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

    /// The log that the last session left for this one, if there is one that can be gone on with.
    ///
    /// Another one is not needed, but a process that was killed at its close may have left that in
    /// the page cache only: to the disk, the object may need it still. That it does not has to be
    /// durable before the log makes room for another.
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
        if !mutated(Mutant::StaleLogNotDisowned) {
            set_log_required(&*self.object, false).map_err(|e| self.poison(e))?;
        }
        Ok(None)
    }

    /// A log whose last record is of the commit that the object file has: the next record goes
    /// behind it.
    ///
    /// Neither its records nor the file's word that it is not needed have to be flushed. Should the
    /// disk have the file say that it is, replaying it changes nothing; and it *was* needed once,
    /// which is said only when log and name are durable, as its records were when they were
    /// applied. All that is not known of a log of the first generation without records: its maker
    /// may have been killed before the flush. (The header of a later one without records is flushed
    /// before the first, as always.)
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

    /// Turns fresh ranges into committed ones: from now on stores there are private.
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

    /// A forked child reads its parent's session and has no part in its commits.
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
