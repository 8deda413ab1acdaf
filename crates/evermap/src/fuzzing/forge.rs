//! Sets valid checksums in arbitrary bytes, so that they pass the checksum test: contents with a
//! valid checksum may still be arbitrary, and anyone who can write a file can write its checksum.

use bytemuck::{Zeroable, bytes_of, pod_read_unaligned};

use crate::checksum::crc32c;
use crate::format::{
    FEATURE_LOG_2, FORMAT_VERSION, LOG_ALIGN, LOG_MAGIC, LOG_RECORD_1_MAGIC, LOG_RECORD_MAGIC,
    LOG_RECORDS_OFFSET, LOG_SLOT_BYTES, LOG_VERSION, LogHeader, LogRecord, LogRecord1, PAGE_BYTES,
    SUPERBLOCK_CHECKED_BYTES, SUPERBLOCK_MAGIC, Superblock,
};

/// Gives page 0 of an object the magic, a supported version, and a valid checksum.
pub(super) fn superblock(object: &mut [u8]) {
    let Some(page) = object.get_mut(..PAGE_BYTES as usize) else { return };
    let mut s: Superblock = pod_read_unaligned(page);
    s.magic = SUPERBLOCK_MAGIC;
    s.format_version = FORMAT_VERSION;
    if s.features_incompatible & FEATURE_LOG_2 != 0 {
        s.root_checksum = crc32c(&[&s.root_area]);
    }
    let unsigned = Superblock { checksum: 0, log_required: 0, ..s };
    s.checksum = crc32c(&[&bytes_of(&unsigned)[..SUPERBLOCK_CHECKED_BYTES]]);
    page.copy_from_slice(bytes_of(&s));
}

/// Turns both header slots into valid headers of the object's log. Returns the one that counts.
pub(super) fn log_headers(log: &mut [u8], object_uuid: [u8; 16]) -> LogHeader {
    let mut newest = LogHeader::zeroed();
    for slot in 0..2 {
        let at = (slot * LOG_SLOT_BYTES) as usize;
        let Some(bytes) = log.get_mut(at..at + size_of::<LogHeader>()) else { continue };
        let mut header: LogHeader = pod_read_unaligned(bytes);
        header.magic = LOG_MAGIC;
        header.format_version = if header.format_version == 1 { 1 } else { LOG_VERSION };
        header.object_uuid = object_uuid;
        header.checksum = 0;
        header.checksum = crc32c(&[bytes_of(&header)]);
        bytes.copy_from_slice(bytes_of(&header));
        if slot == 0 || header.generation > newest.generation {
            newest = header;
        }
    }
    newest
}

/// Turns the bytes after the headers into a chain of records: every head gets the link to the
/// previous one and its checksums. Lengths are only limited to the file; bodies are unchanged.
pub(super) fn log_records(log: &mut [u8], header: &LogHeader) {
    if header.format_version == 1 {
        return log_records_1(log, header);
    }
    let (head_bytes, sector) = (size_of::<LogRecord>(), LOG_ALIGN as usize);
    let mut at = LOG_RECORDS_OFFSET as usize;
    let (mut index, mut previous) = (0, 0);
    while at + sector <= log.len() {
        let mut head: LogRecord = pod_read_unaligned(&log[at..at + head_bytes]);
        index += 1;
        head.magic = LOG_RECORD_MAGIC;
        head.salt = header.salt;
        head.index = index;
        head.sequence = header.base_sequence.wrapping_add(index);
        head.object_uuid = header.object_uuid;
        head.previous = previous;
        (head.kind, head.flags) = (head.kind & head.flags, 0);
        let room = (log.len() - at) / sector * sector - head_bytes;
        head.body_length %= room as u64 + 1;
        let end = at + (head_bytes + head.body_length as usize).next_multiple_of(sector);
        let Some(record) = log.get_mut(at..end) else { return };
        head.rest_checksum = if end - at > sector { crc32c(&[&record[sector..]]) } else { 0 };
        head.checksum = 0;
        record[..head_bytes].copy_from_slice(bytes_of(&head));
        head.checksum = crc32c(&[&record[..sector]]);
        record[..head_bytes].copy_from_slice(bytes_of(&head));
        previous = head.checksum;
        at = end;
    }
}

/// Like `log_records`, for format 1.
fn log_records_1(log: &mut [u8], header: &LogHeader) {
    let head_bytes = size_of::<LogRecord1>();
    let mut at = LOG_RECORDS_OFFSET as usize;
    let mut sequence = header.base_sequence;
    let mut previous = 0;
    while let Some(bytes) = log.get_mut(at..at + head_bytes) {
        let mut head: LogRecord1 = pod_read_unaligned(bytes);
        sequence = sequence.wrapping_add(1);
        head.magic = LOG_RECORD_1_MAGIC;
        head.salt = header.salt;
        head.sequence = sequence;
        head.previous = previous;
        head.checksum = 0;
        let body_at = at + head_bytes;
        let room = log.len() - body_at;
        head.body_length %= room as u64 + 1;
        let end = body_at + head.body_length as usize;
        head.checksum = crc32c(&[bytes_of(&head), &log[body_at..end]]);
        previous = head.checksum;
        log[at..body_at].copy_from_slice(bytes_of(&head));
        at = end.next_multiple_of(LOG_ALIGN as usize);
    }
}
