//! The redo log: one file per object, with two header slots and a chain of records.
//!
//! A commit is durable once its record is. Records chain by the salt of their generation, by
//! consecutive numbers and by the checksum of the previous record, so leftover records of an
//! earlier generation are never taken for records of the current one. The log is pre-written with
//! zeros: a later record changes no file metadata, which saves the flushes that extending the file
//! would need. For large records blocks are only reserved.
//!
//! The log's [`Progress`] is next to the current header, and each record head repeats how far the
//! log was durable: both distinguish damage from a write torn by a crash. [`super::chain`] reads
//! them.

use std::path::Path;
use std::sync::Arc;

use bytemuck::{Zeroable, bytes_of, pod_read_unaligned};
use tracing::{debug, warn};

use super::chain::{Chain, HEADERS_BYTES, Start, Window, newest_header};
use super::progress::{self, Progress};
use super::record::{Commit, RecordBuilder, Sealing};
use crate::address::random_u64;
use crate::checksum::crc32c;
use crate::error::{Error, Result};
use crate::format::{
    LOG_MAGIC, LOG_PROGRESS_OFFSET, LOG_RECORD_1_MAGIC, LOG_RECORD_MAGIC, LOG_RECORDS_OFFSET,
    LOG_SLOT_BYTES, LOG_SLOT_WRITTEN_BYTES, LOG_VERSION, LogHeader, LogProgress, LogRecord,
    LogRecord1,
};
use crate::mutate::{Mutant, mutated};
use crate::storage::{Boot, File, OpenMode, Storage, parent_of};

/// Pre-written length of a new log: enough for the small commits of a short session.
const PREWRITTEN_BYTES_FIRST: u64 = 64 * 1024;
/// Maximum bytes of records in a log that is left for the next session.
const KEPT_RECORDS_BYTES_MAX: u64 = PREWRITTEN_BYTES_FIRST / 2;
/// A full log doubles, but grows by at most this when it is pre-written: zeros cost as much as
/// records.
const PREWRITTEN_STEP_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Maximum growth when blocks are only reserved, unless the record itself needs more.
const RESERVED_STEP_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// From this size on a record is not worth pre-writing zeros. Blocks are reserved for it, and the
/// file is made longer, durably. For smaller records zeros pay: a record of 400 KiB took 1.4 ms
/// into zeros and 2.0 ms into reserved blocks, whose metadata changes.
const RESERVED_FOR_BYTES_MIN: u64 = 1024 * 1024;
/// A log that has grown past this is shortened when it is emptied: to this, or to the bytes used
/// since the previous reset if they are more.
const TRIM_BEYOND_BYTES: u64 = 16 * 1024 * 1024;

/// An open log, positioned after its last valid record.
#[derive(Debug)]
pub(crate) struct Log {
    file: Arc<dyn File>,
    header: LogHeader,
    slot: u64,
    tail: u64,
    /// Bytes of the file, all with blocks.
    prepared: u64,
    /// Records of this generation.
    index: u64,
    previous: u32,
    sequence: u64,
    progress: Arc<Progress>,
    /// True if the progress in the file is from this run of the machine.
    has_progress_of_this_run: bool,
    /// True if this process flushed the current header. A header written by another process may be
    /// in the page cache only, until a record follows it.
    header_flushed: bool,
}

/// Position of a log at one time; shows cheaply if the log has advanced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogPosition {
    salt: u64,
    tail: u64,
    index: u64,
    slot: u64,
    generation: u64,
    format_version: u32,
}

#[cfg(test)]
impl LogPosition {
    /// Number of the generation: one more than the number of resets.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }
}

impl Log {
    /// Creates an empty log for an object whose file holds commit `base_sequence` durably. Replaces
    /// a stale log. The log and its name are durable on return.
    pub(crate) fn create(
        storage: &dyn Storage,
        path: &Path,
        object_uuid: [u8; 16],
        base_sequence: u64,
    ) -> Result<Log> {
        match storage.remove(path) {
            Err(e) if !e.is_missing_file() => return Err(e),
            _ => {}
        }
        let file = storage.open(path, OpenMode::CreateNew)?;
        let header = new_header(object_uuid, 1, random_u64()?, base_sequence);
        let mut log = Log {
            header,
            slot: 0,
            tail: LOG_RECORDS_OFFSET,
            prepared: 0,
            index: 0,
            previous: 0,
            sequence: base_sequence,
            progress: Progress::new(Arc::clone(&file), &header, 0, 0),
            has_progress_of_this_run: true,
            file,
            header_flushed: true,
        };
        let prepared = log
            .lengthen(PREWRITTEN_BYTES_FIRST, true)
            .and_then(|()| log.file.write_at(&log.beginning_of(&header), 0))
            .and_then(|()| match mutated(Mutant::NewLogNotFlushed) {
                true => Ok(()),
                false => log.file.sync_data(),
            })
            .and_then(|()| match mutated(Mutant::LogDirectoryNotFlushed) {
                true => Ok(()),
                false => storage.sync_directory(&parent_of(path)),
            });
        if let Err(error) = prepared {
            let _ = storage.remove(path);
            return Err(error);
        }
        Ok(log)
    }

    /// Opens a log and reads its committed records, oldest first.
    ///
    /// `durable_sequence` is the newest commit known to be durable. The log is flushed before a
    /// newer commit is used, because after a kill the page cache may have a record whose flush
    /// never finished.
    ///
    /// # Errors
    /// `Damaged` if the header, or an acknowledged record, cannot be read. `NewerFormat` if a later
    /// build wrote it.
    pub(crate) fn open(
        file: Arc<dyn File>,
        object_uuid: [u8; 16],
        durable_sequence: u64,
    ) -> Result<(Log, Vec<Commit>)> {
        let mut chain = Chain::open(Arc::clone(&file), object_uuid)?;
        let commits = chain.read_all()?;
        let Start { header, slot, progress: found } = chain.start();
        let Chain { tail, length, index, previous, sequence, .. } = chain;
        if sequence > durable_sequence && !mutated(Mutant::LogTrustedUnflushed) {
            file.sync_data()?;
        }
        let progress = Progress::new(Arc::clone(&file), &header, slot, index);
        let here = |found: LogProgress| file.boot().is(Boot(found.boot));
        let has_progress_of_this_run = found.is_some_and(here);
        let log = Log {
            file,
            header,
            slot,
            tail,
            prepared: length,
            index,
            previous,
            sequence,
            progress,
            has_progress_of_this_run,
            header_flushed: false,
        };
        Ok((log, commits))
    }

    /// Returns true if the log has a record after `position`, in the same generation or in a later
    /// one. A reset alone does not count: the object file then has all of the log's commits, and
    /// the caller compares its commit number. Costs at most two small reads and takes no lock. A
    /// log without a header is taken for one that its writer is just creating, because the header
    /// is written last; the result is true. If the header is damaged, opening the log under its
    /// lock reports that.
    pub(crate) fn moved_since(
        file: &dyn File,
        object_uuid: [u8; 16],
        position: LogPosition,
        sequence: u64,
    ) -> Result<bool> {
        let mut window = Window::default();
        window.load(file, 0, MOVED_CHECK_BYTES)?;
        let start = match newest_header(&window, file, object_uuid) {
            Ok(start) => start,
            Err(Error::Damaged { .. }) => return Ok(true),
            Err(error) => return Err(error),
        };
        let header = start.header;
        let same = header.salt == position.salt;
        let (tail, index) =
            if same { (position.tail, position.index) } else { (LOG_RECORDS_OFFSET, 0) };
        // True even if the record cannot be read: opening then reports the error.
        let here = |progress: &LogProgress| file.boot().is(Boot(progress.boot));
        if start.progress.is_some_and(|progress| progress.written > index && here(&progress)) {
            return Ok(true);
        }
        let next = if same { sequence + 1 } else { header.base_sequence + 1 };
        if window.loaded(tail, HEAD_BYTES).is_none() {
            window.load(file, tail, HEAD_BYTES)?;
        }
        let head = window.loaded(tail, HEAD_BYTES).unwrap_or_default();
        Ok(is_head_of(head, header.format_version, header.salt, next))
    }

    /// Returns true if the log has neither another record nor a reset since `position`. Costs two
    /// small reads and takes no lock. True means that no commit had been made at the time of the
    /// call. False can be returned without need, for example for a half-written record.
    pub(crate) fn stands_at(file: &dyn File, position: LogPosition, sequence: u64) -> Result<bool> {
        let mut bytes = [0; MOVED_CHECK_BYTES];
        let got = file.read_at(&mut bytes, 0)?;
        if got < HEADERS_BYTES {
            return Ok(false);
        }
        // A reset writes the unused header slot, with a higher generation.
        let slot_at = |slot: u64| (slot * LOG_SLOT_BYTES) as usize;
        let other = slot_at(1 - position.slot);
        let header: LogHeader = pod_read_unaligned(&bytes[other..other + size_of::<LogHeader>()]);
        if header.magic == LOG_MAGIC && header.generation > position.generation {
            return Ok(false);
        }
        let progress_at = slot_at(position.slot) + LOG_PROGRESS_OFFSET as usize;
        let progress = progress::parse(&bytes[progress_at..], position.salt);
        // A log of format 1 has no progress.
        let stands = progress.is_some_and(|progress| progress.written <= position.index);
        if !stands && position.format_version > 1 {
            return Ok(false);
        }
        let mut head = [0; HEAD_BYTES];
        if position.tail == LOG_RECORDS_OFFSET && got == MOVED_CHECK_BYTES {
            head.copy_from_slice(&bytes[LOG_RECORDS_OFFSET as usize..]);
        } else {
            file.read_at(&mut head, position.tail)?;
        }
        Ok(!is_head_of(&head, position.format_version, position.salt, sequence + 1))
    }

    /// Returns true if the log has the format of an earlier build. It keeps that format until it is
    /// emptied: a session that begins while readers are present continues it as it is.
    pub(crate) fn is_old(&self) -> bool {
        self.header.format_version < version_written()
    }

    /// Returns true if the object needed this log once, so log and name are durable. That is so if
    /// it has records or was emptied: neither happens earlier.
    pub(crate) fn was_needed(&self) -> bool {
        self.tail > LOG_RECORDS_OFFSET || self.header.generation > 1
    }

    /// Returns true if the log is small enough to be left for the next session, which reads it.
    pub(crate) fn is_small(&self) -> bool {
        self.prepared <= PREWRITTEN_BYTES_FIRST && self.records_bytes() <= KEPT_RECORDS_BYTES_MAX
    }

    /// Current position of the log.
    pub(crate) fn position(&self) -> LogPosition {
        let LogHeader { salt, generation, format_version, .. } = self.header;
        let (tail, index, slot) = (self.tail, self.index, self.slot);
        LogPosition { salt, tail, index, slot, generation, format_version }
    }

    /// Bytes of records since the last reset.
    pub(crate) fn records_bytes(&self) -> u64 {
        self.tail - LOG_RECORDS_OFFSET
    }

    /// The file.
    pub(crate) fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// The log's progress, for the thread that flushes the log.
    pub(super) fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// The last record: salt of its generation, and its index.
    pub(super) fn last_record(&self) -> (u64, u64) {
        (self.header.salt, self.index)
    }

    /// Number of the commit that the object file had durably when this generation began.
    pub(crate) fn base_sequence(&self) -> u64 {
        self.header.base_sequence
    }

    /// Number of the last commit in the log; of the base if the log is empty.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Appends a record: the commit point. Returns when it is durable, or at once if `durable` is
    /// false; the caller flushes the file later.
    ///
    /// # Errors
    /// `DiskFull`, `FileSizeLimit` and other errors of extending the log: nothing was committed.
    /// `DurabilityUnknown` if a flush or the write of the record fails: the log must not be used
    /// again.
    pub(crate) fn append(&mut self, record: &mut RecordBuilder, durable: bool) -> Result<()> {
        let (sequence, index) = (self.sequence + 1, self.index + 1);
        let sealing = Sealing {
            sequence,
            index,
            salt: self.header.salt,
            object_uuid: self.header.object_uuid,
            previous: self.previous,
            durable: self.progress.durable(),
        };
        let (bytes, crc) = match self.header.format_version {
            1 => record.seal_1(&sealing),
            _ => record.seal(&sealing),
        };
        let end = self.tail + bytes.len() as u64;
        if end > self.prepared {
            let large = bytes.len() as u64 >= RESERVED_FOR_BYTES_MIN;
            let step_max = if large { RESERVED_STEP_BYTES_MAX } else { PREWRITTEN_STEP_BYTES_MAX };
            let doubled = (self.prepared * 2).min(self.prepared + step_max);
            self.lengthen(doubled.max(end.next_multiple_of(PREWRITTEN_BYTES_FIRST)), !large)?;
            if !mutated(Mutant::LogGrowthNotFlushed) {
                self.file.sync_data().map_err(|e| unknown(&*self.file, e))?;
            }
        }
        let first = self.tail == LOG_RECORDS_OFFSET;
        if first && !self.header_flushed && !mutated(Mutant::HeaderTrustedUnflushed) {
            // Written again, not only flushed: if the flush of the process that wrote it failed,
            // the kernel takes the page for clean, and it never reaches the disk.
            let at = self.slot * LOG_SLOT_BYTES;
            let written = self.file.write_at_durable(&self.beginning_of(&self.header), at);
            written.map_err(|e| unknown(&*self.file, e))?;
            self.header_flushed = true;
        }
        if !self.has_progress_of_this_run {
            // Written first, so that a reader of a half-written record sees that it was not
            // acknowledged.
            self.progress.announce();
            self.has_progress_of_this_run = true;
        }
        let written = match durable && !mutated(Mutant::RecordNotFlushed) {
            true => self.file.write_at_durable(bytes, self.tail),
            false => self.file.write_at(bytes, self.tail),
        };
        written.map_err(|e| unknown(&*self.file, e))?;
        debug!(path = %self.file.path().display(), sequence, bytes = bytes.len(), "commit");
        self.progress.wrote(index, durable);
        self.tail = end;
        self.index = index;
        self.previous = crc;
        self.sequence = sequence;
        Ok(())
    }

    /// Starts a new generation in this build's format. The object file must hold everything up to
    /// the last commit durably.
    ///
    /// A log of this build's format is never emptied while it has no records. So a generation that
    /// was followed by another one has records, and records of the next generation overwrite them:
    /// if the newer header is damaged, records of the older one are missing.
    pub(crate) fn reset(&mut self) -> Result<()> {
        debug_assert!(self.index > 0 || self.is_old(), "nothing to empty");
        let LogHeader { object_uuid, generation, .. } = self.header;
        let was_old = self.is_old();
        let header = new_header(object_uuid, generation + 1, random_u64()?, self.sequence);
        let slot = if mutated(Mutant::OneHeaderSlot) { self.slot } else { 1 - self.slot };
        let (beginning, at) = (self.beginning_of(&header), slot * LOG_SLOT_BYTES);
        let written = match mutated(Mutant::ResetNotFlushed) {
            true => self.file.write_at(&beginning, at),
            false => self.file.write_at_durable(&beginning, at),
        };
        written.map_err(|e| unknown(&*self.file, e))?;
        if was_old && !mutated(Mutant::OldHeaderKept) {
            // The old generation may have had no records, so erase its header.
            let old = self.slot * LOG_SLOT_BYTES;
            let blank = [0; size_of::<LogHeader>()];
            let written = self.file.write_at_durable(&blank, old);
            written.map_err(|e| unknown(&*self.file, e))?;
        }
        self.progress.begin(&header, slot);
        self.has_progress_of_this_run = true;
        self.header = header;
        self.slot = slot;
        let used = self.tail;
        self.header_flushed = true;
        self.tail = LOG_RECORDS_OFFSET;
        self.index = 0;
        self.previous = 0;
        self.trim(used);
        Ok(())
    }

    /// Returns the bytes of a header slot for a new generation. A crash may tear header and
    /// progress apart: a progress with another salt is ignored.
    fn beginning_of(&self, header: &LogHeader) -> [u8; LOG_SLOT_WRITTEN_BYTES] {
        let mut bytes = [0; LOG_SLOT_WRITTEN_BYTES];
        bytes[..size_of::<LogHeader>()].copy_from_slice(bytes_of(header));
        if header.format_version > 1 {
            let progress = progress::sealed(header.salt, self.file.boot(), 0, 0);
            bytes[LOG_PROGRESS_OFFSET as usize..].copy_from_slice(bytes_of(&progress));
        }
        bytes
    }

    /// Shortens a log that one large commit made long, if the commits up to this reset, which ended
    /// at `used`, needed less. The log is empty, so nothing is lost, and an error is harmless.
    fn trim(&mut self, used: u64) {
        let length = used.max(TRIM_BEYOND_BYTES).next_multiple_of(PREWRITTEN_BYTES_FIRST);
        if self.prepared <= length {
            return;
        }
        match self.file.set_length(length) {
            Ok(()) => self.prepared = length,
            Err(error) => warn!(%error, "an emptied log could not be shortened"),
        }
    }

    /// Reserves blocks up to `end` and, if `zeros` is set, writes zeros into them, so that later
    /// records overwrite written blocks.
    fn lengthen(&mut self, end: u64, zeros: bool) -> Result<()> {
        static ZEROS: [u8; 256 * 1024] = [0; 256 * 1024];
        self.file.allocate(self.prepared, end - self.prepared)?;
        while self.prepared < end {
            let step = (end - self.prepared).min(ZEROS.len() as u64);
            if zeros {
                self.file.write_at(&ZEROS[..step as usize], self.prepared)?;
            }
            self.prepared += step;
        }
        Ok(())
    }
}

/// Converts the error of a failed write or flush of the log. A size limit is checked before
/// anything is written, so it stays as it is.
fn unknown(file: &dyn File, error: Error) -> Error {
    if let Error::FileSizeLimit { .. } = error {
        return error;
    }
    Error::DurabilityUnknown { path: file.path().to_path_buf(), why: error.to_string() }
}

const HEAD_BYTES: usize = size_of::<LogRecord>();
/// Bytes read to check if a log has advanced: both headers and the head of a first record.
const MOVED_CHECK_BYTES: usize = LOG_RECORDS_OFFSET as usize + HEAD_BYTES;

/// Returns true if this looks like the head of a record of this generation and commit.
fn is_head_of(head: &[u8], format_version: u32, salt: u64, sequence: u64) -> bool {
    if head.len() < HEAD_BYTES {
        return false;
    }
    if format_version == 1 {
        let head: LogRecord1 = pod_read_unaligned(&head[..size_of::<LogRecord1>()]);
        return (head.magic, head.salt, head.sequence) == (LOG_RECORD_1_MAGIC, salt, sequence);
    }
    let head: LogRecord = pod_read_unaligned(&head[..HEAD_BYTES]);
    (head.magic, head.salt, head.sequence) == (LOG_RECORD_MAGIC, salt, sequence)
}

/// Format of new logs: this build's, or an earlier one for a test.
fn version_written() -> u32 {
    if mutated(Mutant::EarlierFormat) { 1 } else { LOG_VERSION }
}

fn new_header(object_uuid: [u8; 16], generation: u64, salt: u64, base_sequence: u64) -> LogHeader {
    let mut header = LogHeader {
        magic: LOG_MAGIC,
        format_version: version_written(),
        object_uuid,
        generation,
        salt,
        base_sequence,
        ..LogHeader::zeroed()
    };
    header.checksum = crc32c(&[bytes_of(&header)]);
    header
}
