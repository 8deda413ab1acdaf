//! The commit engine: between commits the program runs at raw memory speed, and the file holds
//! only commits.
//!
//! The writer's mapping is private, so what it stores stays in this process. [`Engine::commit`]
//! finds the pages that became private, compares them with the file, appends the changed lines to
//! the redo log with one durable write (the commit point, and the only flush unless the object
//! grew), writes them to their place without a flush, and drops the private copies. Memory that is
//! fresh since the last commit is mapped shared beyond the committed length: it is written once,
//! in its place, and flushed before the record that makes it part of the object.
//!
//! Invariants: the object file's pages are always those of the last durable commit or newer ones
//! that the log holds; `log_required` is durable in the file before the first record is; a log is
//! reset only after the object file was flushed. The engine takes the mapping's address as a
//! parameter and knows nothing of what lies there, except that page 0 of the file is sealed last.

mod diff;
mod log;
mod record;
mod recovery;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::{debug, warn};

use crate::address::{Mapping, PageScanner, Sharing};
use crate::error::{Error, Result};
use crate::format::{LOG_REQUIRED_OFFSET, PAGE_BYTES};
use crate::storage::{File, Storage};
use diff::{Page, changed_lines};
pub(crate) use log::{Log, LogPosition};
use record::RecordBuilder;
pub(crate) use record::{Commit, for_each_run};
pub(crate) use recovery::{patch_page, recover};

/// Bytes of clean pages read at a time for the comparison.
const CLEAN_BYTES_AT_A_TIME: usize = 1 << 20;
/// Bytes of records after which a commit is followed by a checkpoint.
const CHECKPOINT_AFTER_BYTES: u64 = 64 << 20;

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
    /// Made at the first commit, removed at close.
    WhileOpen,
    /// Kept beside the object for good: many short sessions pay for it once. What it holds is
    /// replayed when the object is opened for writing, unless `applied` says that this process
    /// has seen that done: from then on there was no power cut, so a page that was applied is
    /// still what everybody reads.
    Permanent { applied: bool },
}

/// Commits one writer's changes to one object.
#[derive(Debug)]
pub(crate) struct Engine {
    storage: Arc<dyn Storage>,
    object: Arc<dyn File>,
    object_uuid: [u8; 16],
    log_path: PathBuf,
    policy: LogPolicy,
    log: Option<Log>,
    committed: Vec<Span>,
    scanner: PageScanner,
    sequence: u64,
    /// Why nothing may be committed any more.
    poisoned: Option<String>,
    process: u32,
}

/// The object that an [`Engine`] commits to.
pub(crate) struct Target {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) object: Arc<dyn File>,
    pub(crate) object_uuid: [u8; 16],
    pub(crate) log_path: PathBuf,
    pub(crate) policy: LogPolicy,
    /// The log that is there already, for a permanent one.
    pub(crate) log: Option<Log>,
    /// What is mapped private; the first span begins with page 0 of the file.
    pub(crate) committed: Vec<Span>,
    /// The commit that the file and the log hold.
    pub(crate) sequence: u64,
}

/// What a commit is to contain besides the changed pages of the committed spans.
pub(crate) struct Growth {
    /// Ranges mapped shared since the last commit.
    pub(crate) fresh: Vec<Span>,
    /// Bytes the file has now.
    pub(crate) file_length: u64,
}

impl Engine {
    /// An engine for what `target` describes.
    pub(crate) fn new(target: Target) -> Engine {
        Engine {
            storage: target.storage,
            object: target.object,
            object_uuid: target.object_uuid,
            log_path: target.log_path,
            policy: target.policy,
            log: target.log,
            committed: target.committed,
            scanner: PageScanner::new(),
            sequence: target.sequence,
            poisoned: None,
            process: std::process::id(),
        }
    }

    /// Number of the last commit.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Bytes of records in the log.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.log.as_ref().map_or(0, Log::records_bytes)
    }

    /// Makes everything stored since the last commit part of the object, durably and at once.
    ///
    /// `seal` is called when something changed, with the new commit's number: it brings page 0 up
    /// to date. Returns false when nothing had changed.
    ///
    /// # Errors
    /// `DiskFull` and the like before the commit point: nothing happened, the changes are still
    /// there. `DurabilityUnknown` at it: the session is over, reopening decides.
    pub(crate) fn commit(&mut self, growth: Growth, seal: impl FnOnce(u64)) -> Result<bool> {
        self.check_usable()?;
        let runs = self.dirty_runs();
        let mut record = RecordBuilder::new();
        for run in &runs {
            self.add_changes(run, &mut record)?;
        }
        if record.is_empty() && growth.fresh.is_empty() && !self.page_zero_changed()? {
            self.drop_private(&runs)?;
            return Ok(false);
        }
        if !growth.fresh.is_empty() {
            self.object.sync_data().map_err(|e| self.poison(e))?;
        }
        self.ensure_log()?;
        seal(self.sequence + 1);
        let (now, clean) = self.page_zero()?;
        record.push(0, changed_lines(now, &clean), now);
        let Some(log) = &mut self.log else {
            return Err(self.check_log_missing());
        };
        match log.append(record, growth.file_length) {
            Ok(()) => {}
            Err(e @ Error::DurabilityUnknown { .. }) => return Err(self.poison(e)),
            Err(e) => return Err(e),
        }
        self.sequence += 1;
        let applied = self.apply(&runs).and_then(|()| self.adopt(growth.fresh));
        if let Err(error) = applied {
            // The commit is durable in the log; only this session cannot go on.
            warn!(%error, path = %self.object.path().display(), "commit applied in part; the next open completes it");
            self.poisoned = Some(error.to_string());
        }
        let log_is_long =
            self.log.as_ref().is_some_and(|l| l.records_bytes() > CHECKPOINT_AFTER_BYTES);
        if log_is_long && self.poisoned.is_none() {
            self.checkpoint()?;
        }
        Ok(true)
    }

    /// Forgets everything stored since the last commit in the committed spans.
    pub(crate) fn rollback(&mut self) -> Result<()> {
        self.check_process()?;
        let mut runs = self.dirty_runs();
        if let Some(first) = self.committed.first() {
            runs.push(Run { span: 0, address: first.address, length: PAGE_BYTES });
        }
        self.drop_private(&runs)
    }

    /// Makes the object file durable and empties the log.
    pub(crate) fn checkpoint(&mut self) -> Result<()> {
        self.check_usable()?;
        let Some(log) = &mut self.log else {
            return Ok(());
        };
        if log.records_bytes() == 0 {
            return Ok(());
        }
        debug!(path = %self.object.path().display(), sequence = self.sequence, "checkpoint");
        let done = self.object.sync_data().and_then(|()| log.reset());
        done.map_err(|e| self.poison(e))
    }

    /// Ends the session: checkpoint, and the log goes unless it is permanent.
    pub(crate) fn close(&mut self) -> Result<()> {
        if self.policy != LogPolicy::WhileOpen {
            return self.checkpoint();
        }
        self.check_usable()?;
        if self.log.take().is_some() {
            self.object.sync_data().map_err(|e| self.poison(e))?;
            remove_log(&*self.storage, &*self.object, &self.log_path)?;
        }
        Ok(())
    }

    /// A forked child has no part in its parent's session: not its pages, nor its file.
    fn check_process(&self) -> Result<()> {
        if self.process != std::process::id() {
            return Err(Error::Busy {
                what: self.object.path().display().to_string(),
                holder: "the process that this one was forked from is its writer".to_string(),
            });
        }
        Ok(())
    }

    fn check_usable(&self) -> Result<()> {
        self.check_process()?;
        match &self.poisoned {
            Some(why) => Err(Error::DurabilityUnknown {
                path: self.object.path().to_path_buf(),
                why: why.clone(),
            }),
            None => Ok(()),
        }
    }

    fn poison(&mut self, error: Error) -> Error {
        let why = match error {
            Error::DurabilityUnknown { why, .. } => why,
            other => other.to_string(),
        };
        self.poisoned = Some(why.clone());
        Error::DurabilityUnknown { path: self.object.path().to_path_buf(), why }
    }

    fn check_log_missing(&self) -> Error {
        Error::LogMissing { path: self.object.path().to_path_buf(), log: self.log_path.clone() }
    }

    /// Private pages of the committed spans, page 0 left out.
    fn dirty_runs(&self) -> Vec<Run> {
        let mut found = Vec::new();
        let mut runs = Vec::new();
        for (index, span) in self.committed.iter().enumerate() {
            let skip = if span.file_offset == 0 { PAGE_BYTES } else { 0 };
            found.clear();
            self.scanner.scan(span.address + skip, span.address + span.length, &mut found);
            runs.extend(found.iter().map(|&(start, end)| Run {
                span: index,
                address: start,
                length: end - start,
            }));
        }
        runs
    }

    fn file_offset(&self, run: &Run) -> u64 {
        let span = &self.committed[run.span];
        span.file_offset + (run.address - span.address)
    }

    fn add_changes(&self, run: &Run, record: &mut RecordBuilder) -> Result<()> {
        let first = self.file_offset(run);
        let mut clean = vec![0; CLEAN_BYTES_AT_A_TIME.min(run.length as usize)];
        let mut at = 0;
        while at < run.length {
            let step = (run.length - at).min(clean.len() as u64) as usize;
            let got = self.object.read_at(&mut clean[..step], first + at)?;
            clean[got..step].fill(0);
            for offset in (0..step).step_by(PAGE_BYTES as usize) {
                let address = run.address + at + offset as u64;
                // SAFETY: the run lies in a span that is mapped for as long as the engine holds
                // it, and the caller of `commit` has stopped every writer.
                let now = unsafe { page_at(address) };
                let clean = page_of(&clean[offset..]);
                record.push(
                    (first + at) / PAGE_BYTES + offset as u64 / PAGE_BYTES,
                    changed_lines(now, clean),
                    now,
                );
            }
            at += step as u64;
        }
        Ok(())
    }

    /// Page 0 as it is in memory and in the file.
    fn page_zero(&self) -> Result<(&Page, Page)> {
        let mut clean = [0; PAGE_BYTES as usize];
        self.object.read_at(&mut clean, 0)?;
        // SAFETY: the first span begins with page 0 and is mapped; writers are stopped.
        let now = unsafe { page_at(self.committed[0].address) };
        Ok((now, clean))
    }

    fn page_zero_changed(&self) -> Result<bool> {
        let (now, clean) = self.page_zero()?;
        Ok(changed_lines(now, &clean) != 0)
    }

    /// Makes a log and says so in the object file, durably, before the first record.
    fn ensure_log(&mut self) -> Result<()> {
        if self.log.is_some() {
            return Ok(());
        }
        let log = Log::create(&*self.storage, &self.log_path, self.object_uuid, self.sequence)?;
        // The object file itself is durable up to here: creation, recovery and close saw to it.
        set_log_required(&*self.object, true).map_err(|e| self.poison(e))?;
        self.log = Some(log);
        Ok(())
    }

    /// Writes the changed pages to their place, page 0 last, without a flush.
    fn apply(&self, runs: &[Run]) -> Result<()> {
        for run in runs {
            // SAFETY: the run is mapped and readable; nobody writes during a commit.
            let bytes = unsafe { bytes_at(run.address, run.length) };
            self.object.write_at(bytes, self.file_offset(run))?;
        }
        let (now, _) = self.page_zero()?;
        self.object.write_at(now, 0)?;
        self.drop_private(runs)?;
        let first = &self.committed[0];
        first.mapping.drop_private(first.address, PAGE_BYTES)
    }

    fn drop_private(&self, runs: &[Run]) -> Result<()> {
        for run in runs {
            self.committed[run.span].mapping.drop_private(run.address, run.length)?;
        }
        Ok(())
    }

    /// Turns fresh ranges into committed ones: from now on stores there are private.
    fn adopt(&mut self, fresh: Vec<Span>) -> Result<()> {
        for span in fresh {
            span.mapping.map(
                &*self.object,
                span.address,
                span.length,
                span.file_offset,
                Sharing::PrivateWritable,
            )?;
            span.mapping.advise_random(span.address, span.length);
            let neighbour = self.committed.iter_mut().find(|c| {
                Arc::ptr_eq(&c.mapping, &span.mapping) && c.address + c.length == span.address
            });
            match neighbour {
                Some(c) => c.length += span.length,
                None => self.committed.push(span),
            }
        }
        Ok(())
    }
}

/// A run of private pages.
#[derive(Debug)]
struct Run {
    span: usize,
    address: u64,
    length: u64,
}

/// Switches the flag that says whether the log belongs to the object, durably.
pub(crate) fn set_log_required(object: &dyn File, required: bool) -> Result<()> {
    object.write_at_durable(&u32::from(required).to_le_bytes(), LOG_REQUIRED_OFFSET)
}

/// Takes a log away that the object file has caught up with durably. The removal itself need not
/// be durable: once the flag is cleared, a log that is still there is stale and is ignored.
pub(crate) fn remove_log(storage: &dyn Storage, object: &dyn File, log_path: &Path) -> Result<()> {
    set_log_required(object, false)?;
    storage.remove(log_path)
}

/// # Safety
/// `address` begins a mapped page that nobody writes to while the reference lives.
unsafe fn page_at<'a>(address: u64) -> &'a Page {
    // SAFETY: as the caller promises; a page has no invalid bit patterns.
    unsafe { &*(address as *const Page) }
}

/// # Safety
/// `length` bytes from `address` are mapped and nobody writes to them while the slice lives.
unsafe fn bytes_at<'a>(address: u64, length: u64) -> &'a [u8] {
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(address as *const u8, length as usize) }
}

/// The first page of a buffer that holds at least one.
fn page_of(bytes: &[u8]) -> &Page {
    match bytes.first_chunk() {
        Some(page) => page,
        None => &[0; PAGE_BYTES as usize],
    }
}
