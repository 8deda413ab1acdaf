//! The only case in which damage may lose commits without an error, as documented in
//! docs/damage.md.
//!
//! A power failure lost the log's progress, and the damage is in the last record or destroys all
//! records from some point on. Then nothing vouches for the missing records. This module implements
//! the rule a second time, from the bytes of the log, to judge the engine's implementation.

use std::ops::Range;

use bytemuck::{bytes_of, pod_read_unaligned};

use super::versions::Medium;
use crate::checksum::crc32c;
use crate::format::{
    LOG_ALIGN, LOG_MAGIC, LOG_PROGRESS_OFFSET, LOG_RECORD_MAGIC, LOG_RECORDS_OFFSET,
    LOG_SLOT_BYTES, LOG_VERSION, LogHeader, LogProgress, LogRecord,
};
use crate::storage::Boot;

/// An undamaged log, with the records that vouch for earlier ones.
#[derive(Debug)]
pub(super) struct ExcusedLoss {
    format_version: u32,
    records: Vec<Record>,
    /// Number of records that the progress vouches for.
    by_progress: u64,
    /// On this medium a crash never leaves a sector nearly intact.
    whole_sectors: bool,
}

#[derive(Debug)]
struct Record {
    bytes: Range<usize>,
    /// Number of earlier records that this head declares durable.
    durable: u64,
}

impl ExcusedLoss {
    /// Reads an undamaged log as a machine in boot `boot` sees it.
    pub(super) fn of(log: &[u8], boot: Boot, medium: Medium) -> ExcusedLoss {
        let (records, whole_sectors) = (records_of(log), medium == Medium::DISK);
        let by_progress = progress_at(log).map_or(0, |at| {
            let progress: LogProgress = pod_read_unaligned(&log[at..at + size_of::<LogProgress>()]);
            // On persistent memory, a power failure can tear it: words are written one by one.
            if crc32c(&[bytes_of(&LogProgress { checksum: 0, ..progress })]) != progress.checksum {
                return 0;
            }
            let is_newest = boot.is(Boot(progress.boot));
            if is_newest { progress.written.max(progress.durable) } else { progress.durable }
        });
        let format_version = newest_header(log).map_or(0, |(header, _)| header.format_version);
        ExcusedLoss { format_version, records, by_progress, whole_sectors }
    }

    /// Returns true if this build created the log.
    pub(super) fn is_of_this_format(&self) -> bool {
        self.format_version == LOG_VERSION
    }

    /// Returns the start of each record.
    pub(super) fn starts(&self) -> Vec<usize> {
        self.records.iter().map(|record| record.bytes.start).collect()
    }

    /// Returns how many records may be left without an error when these bytes change. Returns
    /// `None` if such damage must be an error or have no effect.
    pub(super) fn silent_end(&self, damage: &Range<usize>, is_bit: bool) -> Option<usize> {
        let overlaps = |a: &Range<usize>| a.start < damage.end && damage.start < a.end;
        let kept = self.records.iter().position(|record| overlaps(&record.bytes))?;
        let vouched = |durable: u64| durable > kept as u64;
        let head = |record: &Record| record.bytes.start..record.bytes.start + LOG_ALIGN as usize;
        let later = &self.records[kept + 1..];
        let by_a_head = later.iter().any(|r| !overlaps(&head(r)) && vouched(r.durable));
        let is_nearly_whole = is_bit && self.whole_sectors && overlaps(&head(&self.records[kept]));
        let is_error = vouched(self.by_progress) || by_a_head || is_nearly_whole;
        (!is_error).then_some(kept)
    }
}

/// Returns the newest valid header and its slot.
fn newest_header(log: &[u8]) -> Option<(LogHeader, usize)> {
    let header = |slot: usize| {
        let at = slot * LOG_SLOT_BYTES as usize;
        log.get(at..at + size_of::<LogHeader>()).map(pod_read_unaligned::<LogHeader>)
    };
    let is_whole = |header: &LogHeader| {
        crc32c(&[bytes_of(&LogHeader { checksum: 0, ..*header })]) == header.checksum
    };
    let whole = [0, 1].into_iter().filter_map(|slot| Some((header(slot)?, slot)));
    whole.filter(|(h, _)| h.magic == LOG_MAGIC && is_whole(h)).max_by_key(|(h, _)| h.generation)
}

/// Returns the position of the progress that belongs to the newest header.
pub(super) fn progress_at(log: &[u8]) -> Option<usize> {
    let (_, slot) = newest_header(log)?;
    let at = slot * LOG_SLOT_BYTES as usize + LOG_PROGRESS_OFFSET as usize;
    (at + size_of::<LogProgress>() <= log.len()).then_some(at)
}

/// Returns the records of the newest generation.
fn records_of(log: &[u8]) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    let Some((header, _)) = newest_header(log) else { return records };
    let mut at = LOG_RECORDS_OFFSET as usize;
    while let Some(bytes) = log.get(at..at + size_of::<LogRecord>()) {
        let head: LogRecord = pod_read_unaligned(bytes);
        let is_next = head.magic == LOG_RECORD_MAGIC
            && head.salt == header.salt
            && head.index == records.len() as u64 + 1;
        if !is_next {
            break;
        }
        let length = (bytes.len() + head.body_length as usize).next_multiple_of(LOG_ALIGN as usize);
        records.push(Record { bytes: at..at + length, durable: head.durable });
        at += length;
    }
    records
}
