//! Reads the chain of a log's records, and decides where it ends.
//!
//! An unreadable record is either a write torn by a crash, which then never happened, or damage to
//! an acknowledged commit. [`Chain::next`] reads a record or names its unreadable part.
//! [`Chain::end`] decides, in one place for every opening and every check:
//!
//! 1. The log's progress counts the record as durable: damage.
//! 2. The progress was written in this run of the machine, so it is the newest. If it counts the
//!    record as written, the record is damaged. Otherwise no further record was acknowledged, and
//!    the log ends here.
//! 3. A valid head later in the log says that the record was durable: damage.
//! 4. The record's first sector almost matches the expected record: damage. Disks write whole
//!    sectors, so a crash leaves no such sector.
//! 5. Otherwise the log ends here.
//!
//! Step 3 reads the whole rest of the log, which costs something only after a restart.
//!
//! If the newest header is damaged, the one before it counts. Its generation had records, and
//! records of the next generation overwrite the first of them. So a log that ends before the object
//! file's own commit is damaged, too; the superblock's reader checks that.

use std::sync::Arc;

use bytemuck::{bytes_of, pod_read_unaligned};

use super::progress;
use super::record::{Commit, checksum_1, rest_checksum, sector_checksum};
use crate::checksum::crc32c;
use crate::error::{Error, Result};
use crate::format::{
    COUNT_MAX, LOG_ALIGN, LOG_MAGIC, LOG_PROGRESS_OFFSET, LOG_RECORD_1_MAGIC, LOG_RECORD_MAGIC,
    LOG_RECORDS_OFFSET, LOG_SLOT_BYTES, LOG_SLOT_WRITTEN_BYTES, LOG_VERSION, LogHeader,
    LogProgress, LogRecord, LogRecord1, RECORD_1_FOLLOWS_DURABLE, RECORD_OF_LINES,
};
use crate::mutate::{Mutant, mutated};
use crate::storage::{Boot, File};

/// Bytes read at once when a log is opened: both headers and the first record, or a small record
/// that an earlier generation left there.
const OPENING_BYTES: usize = LOG_RECORDS_OFFSET as usize + 4096;
/// Bytes read at once further on: a log of many small records costs few system calls.
const WINDOW_BYTES: usize = 64 * 1024;

const HEAD: usize = size_of::<LogRecord>();
const HEAD_1: usize = size_of::<LogRecord1>();
const SECTOR: usize = LOG_ALIGN as usize;

/// The newest valid header of a log, its slot, and the progress of its generation, if readable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    pub(super) header: LogHeader,
    pub(super) slot: u64,
    pub(super) progress: Option<LogProgress>,
}

/// The records of one generation, read up to `tail`.
#[derive(Debug)]
pub(super) struct Chain {
    file: Arc<dyn File>,
    start: Start,
    window: Window,
    /// Bytes of the file.
    pub(super) length: u64,
    /// Offset of the next record.
    pub(super) tail: u64,
    /// Records read.
    pub(super) index: u64,
    /// Commit number of the last record; of the base before the first.
    pub(super) sequence: u64,
    /// Checksum of the last record; 0 before the first.
    pub(super) previous: u32,
}

/// Result of reading the next record.
pub(super) enum Next {
    Commit(Commit),
    /// No readable record: names the part that is wrong.
    Unreadable(&'static str),
}

/// Evidence that a record was acknowledged.
struct Proof {
    expected: String,
    /// The evidence was written later: the record was complete in the page cache then.
    is_certain: bool,
}

impl Chain {
    /// Opens a log and reads its headers.
    pub(super) fn open(file: Arc<dyn File>, object_uuid: [u8; 16]) -> Result<Chain> {
        let mut window = Window::default();
        window.load(&*file, 0, OPENING_BYTES)?;
        let start = newest_header(&window, &*file, object_uuid)?;
        let length = file.length_after_open()?;
        Ok(Chain {
            file,
            start,
            window,
            length,
            tail: LOG_RECORDS_OFFSET,
            index: 0,
            sequence: start.header.base_sequence,
            previous: 0,
        })
    }

    pub(super) fn start(&self) -> Start {
        self.start
    }

    /// Reads all records up to the end of the chain, oldest first.
    ///
    /// # Errors
    /// `Damaged` if an acknowledged record cannot be read.
    pub(super) fn read_all(&mut self) -> Result<Vec<Commit>> {
        let mut commits = Vec::new();
        loop {
            let wrong = match self.next()? {
                Next::Commit(commit) => {
                    commits.push(commit);
                    continue;
                }
                Next::Unreadable(wrong) => wrong,
            };
            let Some(proof) = self.end()? else { return Ok(commits) };
            // A writer may have continued in the meantime: a record that was half written is
            // complete now, or the progress is newer. The progress is written before a writer's
            // first record.
            self.window = Window::default();
            if let Next::Commit(commit) = self.next()? {
                commits.push(commit);
                continue;
            }
            if proof.is_certain || !self.has_newer_progress()? {
                return Err(self.broken(wrong, proof.expected));
            }
        }
    }

    /// Reads the headers again. Returns true if the progress has changed.
    fn has_newer_progress(&mut self) -> Result<bool> {
        let mut window = Window::default();
        window.load(&*self.file, 0, HEADERS_BYTES)?;
        let start = newest_header(&window, &*self.file, self.start.header.object_uuid)?;
        let is_newer =
            start.header.salt == self.start.header.salt && start.progress != self.start.progress;
        self.start = if is_newer { start } else { self.start };
        Ok(is_newer)
    }

    /// Reads the record at the tail and moves past it.
    fn next(&mut self) -> Result<Next> {
        match self.start.header.format_version {
            1 => self.next_1(),
            _ => self.next_2(),
        }
    }

    fn next_2(&mut self) -> Result<Next> {
        let header = self.start.header;
        let Some(sector) = self.window.get(&*self.file, self.tail, SECTOR)? else {
            return Ok(Next::Unreadable("its first sector, which is after the file's end"));
        };
        let Some(head) = whole_head(sector) else {
            return Ok(Next::Unreadable("its head"));
        };
        let chains = (head.salt == header.salt || mutated(Mutant::SaltIgnored))
            && (head.index == self.index + 1 || mutated(Mutant::SequenceIgnored))
            && (head.sequence == self.sequence + 1 || mutated(Mutant::SequenceIgnored))
            && (head.previous == self.previous || mutated(Mutant::PreviousIgnored))
            && head.object_uuid == header.object_uuid;
        if !chains {
            return Ok(Next::Unreadable("its head, which is another record's"));
        }
        if head.kind != RECORD_OF_LINES || head.flags != 0 {
            return Err(Error::NewerFormat {
                path: self.file.path().to_path_buf(),
                found: format!("a record of kind {} with flags {:#x}", head.kind, head.flags),
                known: format!("records of kind {RECORD_OF_LINES}"),
            });
        }
        let room = self.room_for(head.body_length, HEAD)?;
        if head.body_length > room {
            return Err(self.truncated(room, head.body_length));
        }
        let bytes = (HEAD + head.body_length as usize).next_multiple_of(SECTOR);
        let Some(record) = self.window.get(&*self.file, self.tail, bytes)? else {
            return Ok(Next::Unreadable("its end, which is after the file's end"));
        };
        let right = rest_checksum(record) == head.rest_checksum;
        if !right && !mutated(Mutant::RecordChecksumIgnored) {
            return Ok(Next::Unreadable("its body"));
        }
        let body = record[HEAD..HEAD + head.body_length as usize].to_vec();
        let Some(commit) = Commit::parse(head.file_length, head.page_count, body) else {
            return Ok(Next::Unreadable(
                "its body, which has a correct checksum and invalid contents",
            ));
        };
        self.tail += bytes as u64;
        self.previous = head.checksum;
        self.sequence = head.sequence;
        self.index += 1;
        Ok(Next::Commit(commit))
    }

    fn next_1(&mut self) -> Result<Next> {
        let Some(bytes) = self.window.get(&*self.file, self.tail, HEAD_1)? else {
            return Ok(Next::Unreadable("its head, which is after the file's end"));
        };
        let head: LogRecord1 = pod_read_unaligned(bytes);
        let chains = head.magic == LOG_RECORD_1_MAGIC
            && head.salt == self.start.header.salt
            && head.sequence == self.sequence + 1
            && head.previous == self.previous;
        if !chains {
            return Ok(Next::Unreadable("its head"));
        }
        let room = self.room_for(head.body_length, HEAD_1)?;
        if head.body_length > room {
            return Err(self.truncated(room, head.body_length));
        }
        let body_at = self.tail + HEAD_1 as u64;
        let body = self.window.get(&*self.file, body_at, head.body_length as usize)?;
        let Some(body) = body.filter(|body| checksum_1(&head, body) == head.checksum) else {
            return Ok(Next::Unreadable("its body"));
        };
        let Some(commit) = Commit::parse(head.file_length, head.page_count, body.to_vec()) else {
            return Ok(Next::Unreadable(
                "its body, which has a correct checksum and invalid contents",
            ));
        };
        self.tail = (body_at + head.body_length).next_multiple_of(LOG_ALIGN);
        self.previous = head.checksum;
        self.sequence = head.sequence;
        self.index += 1;
        Ok(Next::Commit(commit))
    }

    /// Returns the bytes of the file after a head at the tail.
    fn room_for(&mut self, body_length: u64, head_bytes: usize) -> Result<u64> {
        let body_at = self.tail + head_bytes as u64;
        if body_length > self.length.saturating_sub(body_at) {
            // A writer may have appended since the log was opened.
            self.length = self.file.length()?;
        }
        Ok(self.length.saturating_sub(body_at))
    }

    /// Decides whether the unreadable record at the tail is the end of the log (`None`) or damage.
    fn end(&mut self) -> Result<Option<Proof>> {
        let certain = |expected: String| Ok(Some(Proof { expected, is_certain: true }));
        if let Some(progress) = self.start.progress {
            let LogProgress { written, durable, boot, .. } = progress;
            if self.index < durable {
                return certain(format!("{durable} records, which were durable"));
            }
            let is_newest =
                self.file.boot().is(Boot(boot)) || mutated(Mutant::ProgressOfAnotherBootTrusted);
            match is_newest {
                true if self.index >= written => return Ok(None),
                true => return certain(format!("{written} records, which were written")),
                false => {}
            }
        }
        if let Some(expected) = self.find_proof()? {
            return certain(expected);
        }
        let is_damaged = self.has_a_damaged_head()? && !mutated(Mutant::DamagedHeadIsAnEnd);
        let expected = "a complete record, or none".to_string();
        Ok(is_damaged.then_some(Proof { expected, is_certain: false }))
    }

    /// Searches the rest of the log for a head that says that the record at the tail was durable.
    fn find_proof(&mut self) -> Result<Option<String>> {
        let mut at = self.tail;
        let length = self.file.length()?;
        while at + LOG_ALIGN <= length {
            let step = (length - at).min(WINDOW_BYTES as u64) as usize / SECTOR * SECTOR;
            self.window.load(&*self.file, at, step)?;
            let found = self.window.bytes.as_chunks::<SECTOR>().0.iter();
            for (sector, offset) in found.zip((at..).step_by(SECTOR)) {
                if let Some(expected) = self.proof_in(sector, offset)? {
                    return Ok(Some(expected));
                }
            }
            at += step as u64;
        }
        Ok(None)
    }

    fn proof_in(&self, sector: &[u8; SECTOR], offset: u64) -> Result<Option<String>> {
        let header = &self.start.header;
        if sector[..4] == LOG_RECORD_1_MAGIC.to_le_bytes() && header.format_version == 1 {
            return self.proof_in_1(sector, offset);
        }
        let Some(head) = whole_head(sector).filter(|h| h.object_uuid == header.object_uuid) else {
            return Ok(None);
        };
        let LogRecord { salt, sequence, durable, .. } = head;
        let says_so = salt == header.salt && durable > self.index;
        Ok((says_so && !mutated(Mutant::LaterHeadsIgnored)).then(|| {
            format!(
                "{durable} records: the head of commit {sequence} at byte {offset} says that they \
                 were durable"
            )
        }))
    }

    /// Like [`proof_in`](Chain::proof_in) for format 1, whose heads have no checksum: only a
    /// complete record counts.
    fn proof_in_1(&self, sector: &[u8; SECTOR], offset: u64) -> Result<Option<String>> {
        let head: LogRecord1 = pod_read_unaligned(&sector[..HEAD_1]);
        let body_at = offset + HEAD_1 as u64;
        let counts = head.flags & RECORD_1_FOLLOWS_DURABLE != 0
            && head.salt == self.start.header.salt
            && head.sequence > self.sequence + 1
            && head.body_length <= self.length.saturating_sub(body_at);
        if !counts {
            return Ok(None);
        }
        let mut body = vec![0; head.body_length as usize];
        let got = self.file.read_at(&mut body, body_at)?;
        let whole = got == body.len() && checksum_1(&head, &body) == head.checksum;
        Ok(whole.then(|| format!("the record before commit {} at byte {offset}", head.sequence)))
    }

    /// Returns true if the sector at the tail is almost the first one of the expected record: at
    /// least four of the five fields that identify it are correct, but its checksum is not.
    fn has_a_damaged_head(&mut self) -> Result<bool> {
        let header = self.start.header;
        if header.format_version == 1 || !self.file.keeps_sectors_whole() {
            return Ok(false);
        }
        let Some(sector) = self.window.get(&*self.file, self.tail, SECTOR)? else {
            return Ok(false);
        };
        if whole_head(sector).is_some() {
            return Ok(false);
        }
        let head: LogRecord = pod_read_unaligned(&sector[..HEAD]);
        let right = [
            head.magic == LOG_RECORD_MAGIC,
            head.salt == header.salt,
            head.index == self.index + 1,
            head.sequence == self.sequence + 1,
            head.object_uuid == header.object_uuid,
        ];
        Ok(right.into_iter().filter(|right| *right).count() >= 4)
    }

    fn truncated(&self, room: u64, needed: u64) -> Error {
        let expected = format!("{needed} bytes of it");
        self.damaged(format!("{room} bytes of its body: the log was truncated"), expected)
    }

    fn broken(&self, wrong: &'static str, expected: String) -> Error {
        self.damaged(format!("{wrong} cannot be read"), expected)
    }

    fn damaged(&self, found: String, expected: String) -> Error {
        let (commit, record, at) = (self.sequence + 1, self.index + 1, self.tail);
        Error::Damaged {
            path: self.file.path().to_path_buf(),
            what: "the log",
            found: format!("commit {commit}, record {record} at byte {at}: {found}"),
            expected,
        }
    }
}

/// Returns the head in a record's first sector if the sector's checksum is correct.
fn whole_head(sector: &[u8]) -> Option<LogRecord> {
    let head: LogRecord = pod_read_unaligned(sector.get(..HEAD)?);
    if head.magic != LOG_RECORD_MAGIC {
        return None;
    }
    let right = sector_checksum(sector) == head.checksum || mutated(Mutant::RecordChecksumIgnored);
    right.then_some(head)
}

/// A part of the file in memory.
#[derive(Debug, Default)]
pub(super) struct Window {
    bytes: Vec<u8>,
    offset: u64,
}

impl Window {
    pub(super) fn load(&mut self, file: &dyn File, offset: u64, length: usize) -> Result<()> {
        self.bytes.resize(length, 0);
        self.offset = offset;
        let got = file.read_at(&mut self.bytes, offset)?;
        self.bytes.truncate(got);
        Ok(())
    }

    /// Returns bytes that are already in memory.
    pub(super) fn loaded(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let start = usize::try_from(offset.checked_sub(self.offset)?).ok()?;
        self.bytes.get(start..start.checked_add(length)?)
    }

    /// Returns bytes of the file, read if necessary; `None` after its end.
    fn get(&mut self, file: &dyn File, offset: u64, length: usize) -> Result<Option<&[u8]>> {
        if self.loaded(offset, length).is_none() {
            self.load(file, offset, length.max(WINDOW_BYTES))?;
        }
        Ok(self.loaded(offset, length))
    }
}

/// Bytes at the beginning of a log that contain both headers and their progress.
pub(super) const HEADERS_BYTES: usize = LOG_SLOT_BYTES as usize + LOG_SLOT_WRITTEN_BYTES;

/// Returns the valid header with the higher generation.
pub(super) fn newest_header(
    window: &Window,
    file: &dyn File,
    object_uuid: [u8; 16],
) -> Result<Start> {
    let mut newest: Option<(LogHeader, u64)> = None;
    let mut found = "no valid header slot".to_string();
    for slot in 0..2 {
        let Some(bytes) = window.loaded(slot * LOG_SLOT_BYTES, size_of::<LogHeader>()) else {
            continue;
        };
        let header: LogHeader = pod_read_unaligned(bytes);
        let unsigned = LogHeader { checksum: 0, ..header };
        let right = crc32c(&[bytes_of(&unsigned)]) == header.checksum
            || mutated(Mutant::HeaderChecksumIgnored);
        if header.magic != LOG_MAGIC || !right {
            continue;
        }
        if header.format_version > LOG_VERSION {
            return Err(Error::NewerFormat {
                path: file.path().to_path_buf(),
                found: format!("a log of version {}", header.format_version),
                known: format!("version {LOG_VERSION}"),
            });
        }
        if header.generation.max(header.base_sequence) >= COUNT_MAX {
            found = "a header with impossible numbers".to_string();
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
    let Some((header, slot)) = newest else {
        return Err(Error::Damaged {
            path: file.path().to_path_buf(),
            what: "the log's header",
            found,
            expected: "a header with this object's id".to_string(),
        });
    };
    let at = slot * LOG_SLOT_BYTES + LOG_PROGRESS_OFFSET;
    let bytes = window.loaded(at, size_of::<LogProgress>());
    let progress = bytes.and_then(|bytes| progress::parse(bytes, header.salt));
    Ok(Start { header, slot, progress })
}
