//! The redo log: a file of its own beside the object, two header slots and a chain of records.
//!
//! A commit is durable when its record is. Records chain by the salt of their generation, by
//! consecutive sequence numbers and by the checksum of the record before, so what an earlier
//! generation left behind a shorter one is not taken for part of it. The log is pre-written with
//! zeros: a later record changes no metadata of the file, which saves the flushes that extending
//! it would need.

use std::path::Path;
use std::sync::Arc;

use bytemuck::{Zeroable, bytes_of, pod_read_unaligned};
use tracing::{debug, warn};

use super::record::{Commit, RecordBuilder, checksum};
use crate::address::random_u64;
use crate::checksum::crc32c;
use crate::error::{Error, Result};
use crate::format::{
    COUNT_MAX, FORMAT_VERSION, LOG_ALIGN, LOG_MAGIC, LOG_RECORD_MAGIC, LOG_RECORDS_OFFSET,
    LOG_SLOT_BYTES, LogHeader, LogRecord, RECORD_FOLLOWS_DURABLE,
};
use crate::mutate::{Mutant, mutated};
use crate::storage::{File, OpenMode, Storage, parent_of};

/// How far behind a record that is broken a later one is looked for.
const LOOK_AHEAD_BYTES: u64 = 1 << 20;
/// Bytes a new log is pre-written to: enough for the small commits of a short session.
const PREWRITTEN_BYTES_FIRST: u64 = 64 * 1024;
/// Bytes of records that a log may have that is left for the next session.
const KEPT_RECORDS_BYTES_MAX: u64 = PREWRITTEN_BYTES_FIRST / 2;
/// The log doubles when it is full, by at most this when it is pre-written: zeros cost as much as
/// records.
const PREWRITTEN_STEP_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// The same when blocks are only reserved.
const RESERVED_STEP_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Records of at least this many bytes are not worth writing zeros for first. Blocks are reserved
/// for them and the file made longer, durably. For smaller ones zeros pay: a record of 400 KiB took
/// 1.4 ms into zeros and 2.0 into reserved blocks, whose metadata changes.
const RESERVED_FOR_BYTES_MIN: u64 = 1024 * 1024;
/// A log that has grown past this is cut when it is emptied, to this or to what was used of it
/// last.
const TRIM_BEYOND_BYTES: u64 = 16 * 1024 * 1024;

/// An open log, positioned behind its last valid record.
#[derive(Debug)]
pub(crate) struct Log {
    file: Arc<dyn File>,
    header: LogHeader,
    slot: u64,
    tail: u64,
    /// Bytes of the file, all of which have blocks.
    prepared: u64,
    previous: u32,
    sequence: u64,
    /// Every record up to the tail is durable.
    durable: bool,
    /// This process flushed the header that counts. Of one that another process wrote, only the
    /// page cache may know, as long as no record follows it.
    header_flushed: bool,
}

/// Where a log stood when it was last looked at; tells cheaply whether it has moved on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogPosition {
    salt: u64,
    tail: u64,
    slot: u64,
    generation: u64,
}

#[cfg(test)]
impl LogPosition {
    /// How often the log was emptied, and one.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }
}

impl Log {
    /// Makes an empty log for an object whose file holds commit `base_sequence` durably. Replaces
    /// a stale one. The log and its name are durable on return.
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
        let header = new_header(object_uuid, 1, base_sequence)?;
        let mut log = Log {
            file,
            header,
            slot: 0,
            tail: LOG_RECORDS_OFFSET,
            prepared: 0,
            previous: 0,
            sequence: base_sequence,
            durable: true,
            header_flushed: true,
        };
        let prepared = log
            .lengthen(PREWRITTEN_BYTES_FIRST, true)
            .and_then(|()| log.file.write_at(bytes_of(&log.header), 0))
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
    /// `durable_sequence` is the newest commit known to be durable already: the log is flushed
    /// before anything newer is believed, because after a kill the page cache may show a record
    /// whose flush never finished.
    pub(crate) fn open(
        file: Arc<dyn File>,
        object_uuid: [u8; 16],
        durable_sequence: u64,
    ) -> Result<(Log, Vec<Commit>)> {
        let mut window = Window::new();
        window.load(&*file, 0, OPENING_BYTES)?;
        let (header, slot) = newest_header(&window, &*file, object_uuid)?;
        let length = file.length()?;
        let mut log = Log {
            file,
            header,
            slot,
            tail: LOG_RECORDS_OFFSET,
            prepared: length,
            previous: 0,
            sequence: header.base_sequence,
            // What was read is flushed below, if it was not before.
            durable: true,
            header_flushed: false,
        };
        let mut commits = Vec::new();
        loop {
            while let Some(commit) = log.read_next(&mut window)? {
                commits.push(commit);
            }
            let Some(later) = log.find_later(&mut window)? else { break };
            // A writer may have gone on meanwhile: what was half written when it was read is
            // whole now.
            window = Window::new();
            match log.read_next(&mut window)? {
                Some(commit) => commits.push(commit),
                None => return Err(log.broken(format!("commit {later} behind what is no record"))),
            }
        }
        if log.sequence > durable_sequence && !mutated(Mutant::LogTrustedUnflushed) {
            log.file.sync_data()?;
        }
        Ok((log, commits))
    }

    /// Has anything been appended or reset since `position`? Two small reads, and no lock: what has no
    /// header is taken for a log that its writer is just making, whose header comes last. Who then
    /// opens it, with the log held, says what is wrong if something is.
    pub(crate) fn moved_since(
        file: &dyn File,
        object_uuid: [u8; 16],
        position: LogPosition,
        sequence: u64,
    ) -> Result<bool> {
        let mut window = Window::new();
        window.load(file, 0, GLANCE_BYTES)?;
        let header = match newest_header(&window, file, object_uuid) {
            Ok((header, _)) => header,
            Err(Error::Damaged { .. }) => return Ok(true),
            Err(error) => return Err(error),
        };
        let same = header.salt == position.salt;
        let tail = if same { position.tail } else { LOG_RECORDS_OFFSET };
        let next = if same { sequence + 1 } else { header.base_sequence + 1 };
        if same && tail != LOG_RECORDS_OFFSET {
            window.load(file, tail, size_of::<LogRecord>())?;
        }
        Ok(match read_head(&mut window, file, tail)? {
            Some(head) => head.salt == header.salt && head.sequence == next,
            None => false,
        })
    }

    /// Does the log stand where it stood, without another record and without a reset? Two reads of
    /// 64 bytes, and no lock: what a commit that is going on has half written counts as none. True
    /// says that no commit had been made when it was asked; false may be said too often.
    pub(crate) fn stands_at(file: &dyn File, position: LogPosition, sequence: u64) -> Result<bool> {
        // A reset writes the header that was not in use, with a higher generation.
        let mut header = LogHeader::zeroed();
        let other = (1 - position.slot) * LOG_SLOT_BYTES;
        file.read_at(bytemuck::bytes_of_mut(&mut header), other)?;
        if header.magic == LOG_MAGIC && header.generation > position.generation {
            return Ok(false);
        }
        let mut head = LogRecord::zeroed();
        file.read_at(bytemuck::bytes_of_mut(&mut head), position.tail)?;
        Ok(head.magic != LOG_RECORD_MAGIC
            || head.salt != position.salt
            || head.sequence != sequence + 1)
    }

    /// An object asked for this log once, and so log and name are durable: it has records, or was
    /// emptied, and neither happens before.
    pub(crate) fn was_needed(&self) -> bool {
        self.tail > LOG_RECORDS_OFFSET || self.header.generation > 1
    }

    /// Is it small enough to be left for the next session, which reads it?
    pub(crate) fn is_small(&self) -> bool {
        self.prepared <= PREWRITTEN_BYTES_FIRST && self.records_bytes() <= KEPT_RECORDS_BYTES_MAX
    }

    /// Where the log stands.
    pub(crate) fn position(&self) -> LogPosition {
        let LogHeader { salt, generation, .. } = self.header;
        LogPosition { salt, tail: self.tail, slot: self.slot, generation }
    }

    /// Bytes of records since the last reset.
    pub(crate) fn records_bytes(&self) -> u64 {
        self.tail - LOG_RECORDS_OFFSET
    }

    /// The file.
    pub(crate) fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// The commit that the object file had durably when this generation of the log began.
    pub(crate) fn base_sequence(&self) -> u64 {
        self.header.base_sequence
    }

    /// Sequence of the last commit in the log; of the base when it is empty.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Appends a record: the commit point. Returns when it is durable, or at once when `durable`
    /// is false; then somebody flushes the file later.
    ///
    /// # Errors
    /// Before anything of the record reaches the file: `DiskFull` and the like, nothing happened.
    /// After: `DurabilityUnknown`, and the log must not be used again.
    pub(crate) fn append(&mut self, record: &mut RecordBuilder, durable: bool) -> Result<()> {
        let sequence = self.sequence + 1;
        let flags = if self.durable { RECORD_FOLLOWS_DURABLE } else { 0 };
        let (bytes, crc) = record.seal(sequence, self.header.salt, self.previous, flags);
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
            self.file.sync_data().map_err(|e| unknown(&*self.file, e))?;
            self.header_flushed = true;
        }
        let written = match durable && !mutated(Mutant::RecordNotFlushed) {
            true => self.file.write_at_durable(bytes, self.tail),
            false => self.file.write_at(bytes, self.tail),
        };
        written.map_err(|e| unknown(&*self.file, e))?;
        debug!(path = %self.file.path().display(), sequence, bytes = bytes.len(), "commit");
        self.tail = end;
        self.previous = crc;
        self.sequence = sequence;
        // Who flushes later does not say so here: the next generation begins anew.
        self.durable &= durable;
        Ok(())
    }

    /// Starts a new generation: the object file holds everything up to the last commit durably.
    pub(crate) fn reset(&mut self) -> Result<()> {
        let header =
            new_header(self.header.object_uuid, self.header.generation + 1, self.sequence)?;
        let slot = if mutated(Mutant::OneHeaderSlot) { self.slot } else { 1 - self.slot };
        let written = match mutated(Mutant::ResetNotFlushed) {
            true => self.file.write_at(bytes_of(&header), slot * LOG_SLOT_BYTES),
            false => self.file.write_at_durable(bytes_of(&header), slot * LOG_SLOT_BYTES),
        };
        written.map_err(|e| unknown(&*self.file, e))?;
        self.header = header;
        self.slot = slot;
        let used = self.tail;
        self.header_flushed = true;
        self.tail = LOG_RECORDS_OFFSET;
        self.previous = 0;
        self.durable = true;
        self.trim(used);
        Ok(())
    }

    /// Gives back what one large commit made the log grow to, when the commits up to this reset,
    /// which ended at `used`, needed less. The log is empty: cutting it loses nothing, and failing
    /// to cut it does no harm.
    fn trim(&mut self, used: u64) {
        let length = used.max(TRIM_BEYOND_BYTES).next_multiple_of(PREWRITTEN_BYTES_FIRST);
        if self.prepared <= length {
            return;
        }
        match self.file.set_length(length) {
            Ok(()) => self.prepared = length,
            Err(error) => warn!(%error, "a log stays longer than it needs to be"),
        }
    }

    /// Reserves blocks up to `end` and, if asked to, writes zeros into them, so that later records
    /// find blocks that are written already.
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

    /// Reads the record at the tail and moves behind it; `None` where the chain ends.
    fn read_next(&mut self, window: &mut Window) -> Result<Option<Commit>> {
        let Some(head) = read_head(window, &*self.file, self.tail)? else { return Ok(None) };
        let body_at = self.tail + size_of::<LogRecord>() as u64;
        let chains = (head.salt == self.header.salt || mutated(Mutant::SaltIgnored))
            && (head.sequence == self.sequence + 1 || mutated(Mutant::SequenceIgnored))
            && (head.previous == self.previous || mutated(Mutant::PreviousIgnored));
        if !chains {
            return Ok(None);
        }
        // A record is written into a file that was made long enough for it, durably.
        if head.body_length > self.prepared.saturating_sub(body_at) {
            // A writer may have gone on since it was opened.
            self.prepared = self.file.length()?;
        }
        let room = self.prepared.saturating_sub(body_at);
        if head.body_length > room {
            let found = format!("{room} bytes of a record of {}: it was cut", head.body_length);
            return Err(self.broken(found));
        }
        let body = window.get(&*self.file, body_at, head.body_length as usize)?.map(<[u8]>::to_vec);
        let Some(body) = body.filter(|body| {
            checksum(&head, body) == head.checksum || mutated(Mutant::RecordChecksumIgnored)
        }) else {
            return Ok(None);
        };
        let Some(commit) = Commit::parse(&head, body) else {
            warn!(path = %self.file.path().display(), "a log record with a right checksum has a wrong body");
            return Ok(None);
        };
        self.tail = (body_at + head.body_length).next_multiple_of(LOG_ALIGN);
        self.previous = head.checksum;
        self.sequence = head.sequence;
        Ok(Some(commit))
    }

    /// The number of a record behind the tail that was written when everything before it was
    /// durable: behind what a crash tore there is none. Looked for only where something lies at
    /// the tail that this generation may have written, and only so far that it costs an opening no
    /// more than some 100 us.
    fn find_later(&self, window: &mut Window) -> Result<Option<u64>> {
        let first = window.get(&*self.file, self.tail, LOG_ALIGN as usize)?;
        let Some(first) = first.filter(|block| block.iter().any(|byte| *byte != 0)) else {
            return Ok(None);
        };
        // A head that is whole tells where the next one is, however far that is.
        let head: LogRecord = pod_read_unaligned(&first[..size_of::<LogRecord>()]);
        if self.is_whole_and_older(window, &head)? {
            return Ok(None);
        }
        let behind_head = size_of::<LogRecord>() as u64;
        let next =
            self.tail.checked_add(behind_head).and_then(|at| at.checked_add(head.body_length));
        let next = next.and_then(|at| at.checked_next_multiple_of(LOG_ALIGN));
        let length = self.file.length()?;
        let end = length.min(self.tail + LOOK_AHEAD_BYTES);
        let near = (self.tail + LOG_ALIGN..end).step_by(LOG_ALIGN as usize);
        for at in near.chain(next.filter(|at| *at >= end && *at < length)) {
            if let Some(head) = read_head(window, &*self.file, at)?
                && head.flags & RECORD_FOLLOWS_DURABLE != 0
                && head.salt == self.header.salt
                && head.sequence > self.sequence + 1
                && head.body_length <= length.saturating_sub(at + behind_head)
                && let Some(body) =
                    window.get(&*self.file, at + behind_head, head.body_length as usize)?
                && checksum(&head, body) == head.checksum
            {
                return Ok(Some(head.sequence));
            }
        }
        Ok(None)
    }

    /// Is what begins at the tail, with `head`, a whole record of an earlier generation? Then this
    /// generation ends here: most logs that are opened are empty ones that were used before.
    ///
    /// Why that is no torn or damaged record of this generation: damage makes no right checksum,
    /// and a record of which a crash kept the first sector from the disk was not durable, so that
    /// none behind it says so. What is missed is a disk that reported a write as durable, lost it,
    /// and kept later ones; over the zeros of a new log that is missed as well, and a check of the
    /// store finds both. Nothing follows from whole records further behind: they may be a part of a
    /// record's body, as a program may store such bytes. The sequence tells an earlier generation
    /// from a later one whose header is damaged, so that the one before it counts: records of that
    /// are behind this header's base.
    fn is_whole_and_older(&self, window: &mut Window, head: &LogRecord) -> Result<bool> {
        let fits = head.body_length <= (WINDOW_BYTES - size_of::<LogRecord>()) as u64;
        let older = head.salt != self.header.salt && head.sequence <= self.header.base_sequence;
        if head.magic != LOG_RECORD_MAGIC || !fits || !older {
            return Ok(false);
        }
        let body_at = self.tail + size_of::<LogRecord>() as u64;
        let body = window.get(&*self.file, body_at, head.body_length as usize)?;
        Ok(body.is_some_and(|body| checksum(head, body) == head.checksum))
    }

    fn broken(&self, found: String) -> Error {
        Error::Damaged {
            path: self.file.path().to_path_buf(),
            what: "the log",
            found,
            expected: format!("the record of commit {} whole", self.sequence + 1),
        }
    }
}

/// What a failed write or flush of the log comes to. A limit was looked at before anything was
/// written.
fn unknown(file: &dyn File, error: Error) -> Error {
    if let Error::FileSizeLimit { .. } = error {
        return error;
    }
    Error::DurabilityUnknown { path: file.path().to_path_buf(), why: error.to_string() }
}

/// Bytes read at once when a log is opened: both headers and the first record, or a small one that
/// an earlier generation left in its place.
const OPENING_BYTES: usize = LOG_RECORDS_OFFSET as usize + 4096;
/// Bytes read to see whether a log has moved on: both headers and the head of a first record.
const GLANCE_BYTES: usize = LOG_RECORDS_OFFSET as usize + size_of::<LogRecord>();
/// Bytes read at once further on: a log of many small records costs few system calls.
const WINDOW_BYTES: usize = 64 * 1024;

/// A part of the file in memory.
struct Window {
    bytes: Vec<u8>,
    offset: u64,
}

impl Window {
    fn new() -> Window {
        Window { bytes: Vec::new(), offset: 0 }
    }

    fn load(&mut self, file: &dyn File, offset: u64, length: usize) -> Result<()> {
        self.bytes.resize(length, 0);
        self.offset = offset;
        let got = file.read_at(&mut self.bytes, offset)?;
        self.bytes.truncate(got);
        Ok(())
    }

    /// Bytes that are in memory already.
    fn loaded(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset.checked_sub(self.offset)?).ok()?;
        self.bytes.get(start..start.checked_add(length)?)
    }

    /// Bytes of the file; `None` where it ends before.
    fn get(&mut self, file: &dyn File, offset: u64, length: usize) -> Result<Option<&[u8]>> {
        if self.loaded(offset, length).is_none() {
            self.load(file, offset, length.max(WINDOW_BYTES))?;
        }
        Ok(self.loaded(offset, length))
    }
}

fn read_head(window: &mut Window, file: &dyn File, offset: u64) -> Result<Option<LogRecord>> {
    let Some(bytes) = window.get(file, offset, size_of::<LogRecord>())? else { return Ok(None) };
    let head: LogRecord = bytemuck::pod_read_unaligned(bytes);
    Ok((head.magic == LOG_RECORD_MAGIC).then_some(head))
}

fn new_header(object_uuid: [u8; 16], generation: u64, base_sequence: u64) -> Result<LogHeader> {
    let mut header = LogHeader {
        magic: LOG_MAGIC,
        format_version: FORMAT_VERSION,
        object_uuid,
        generation,
        salt: random_u64()?,
        base_sequence,
        ..LogHeader::zeroed()
    };
    header.checksum = crc32c(&[bytes_of(&header)]);
    Ok(header)
}

/// The valid header slot with the higher generation.
fn newest_header(
    window: &Window,
    file: &dyn File,
    object_uuid: [u8; 16],
) -> Result<(LogHeader, u64)> {
    let mut newest: Option<(LogHeader, u64)> = None;
    let mut found = "no valid header slot".to_string();
    for slot in 0..2 {
        let Some(bytes) = window.loaded(slot * LOG_SLOT_BYTES, size_of::<LogHeader>()) else {
            continue;
        };
        let header: LogHeader = bytemuck::pod_read_unaligned(bytes);
        let unsigned = LogHeader { checksum: 0, ..header };
        let right = crc32c(&[bytes_of(&unsigned)]) == header.checksum
            || mutated(Mutant::HeaderChecksumIgnored);
        if header.magic != LOG_MAGIC || !right {
            continue;
        }
        if header.format_version > FORMAT_VERSION {
            return Err(Error::NewerFormat {
                path: file.path().to_path_buf(),
                found: format!("version {}", header.format_version),
                known: format!("version {FORMAT_VERSION}"),
            });
        }
        if header.generation.max(header.base_sequence) >= COUNT_MAX {
            found = "a header of numbers that no log reaches".to_string();
            continue;
        }
        if header.object_uuid != object_uuid && !mutated(Mutant::LogIdentityIgnored) {
            found = "the log of another object".to_string();
            continue;
        }
        let newer = |(n, _): (LogHeader, u64)| {
            header.generation > n.generation && !mutated(Mutant::GenerationIgnored)
        };
        if newest.is_none_or(newer) {
            newest = Some((header, slot));
        }
    }
    newest.ok_or_else(|| Error::Damaged {
        path: file.path().to_path_buf(),
        what: "the log's header",
        found,
        expected: "a header that belongs to the object beside it".to_string(),
    })
}
