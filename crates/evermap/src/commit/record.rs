//! A log record: the changed lines of one commit, built in memory and read back.
//!
//! A record is physical (absolute images of lines). So applying it twice, or over a page that a
//! power failure left partly written, gives the same page. Every byte of a record, including its
//! padding, must be under a checksum. Only format 1 has none for the padding.

use std::mem::offset_of;

use bytemuck::{Zeroable, bytes_of};

use crate::checksum::crc32c;
use crate::format::{
    FILE_BYTES_MAX, LINE_BYTES, LOG_ALIGN, LOG_RECORD_1_MAGIC, LOG_RECORD_MAGIC, LogPage,
    LogRecord, LogRecord1, PAGE_BYTES, PAGE_LINES, RECORD_1_FOLLOWS_DURABLE, RECORD_OF_LINES,
};
use crate::mutate::{Mutant, mutated};

/// A page's bytes. The unit of the log is a line of 64 bytes, so a mask of lines describes every
/// change of a page.
pub(super) type Page = [u8; PAGE_BYTES as usize];

/// A page with more changed lines than this is logged whole: one contiguous copy is cheaper.
const LINES_BEFORE_WHOLE_PAGE: u32 = 48;

/// Collects changed pages; `seal` produces the bytes to append.
///
/// Pages after the new end of the file are left out: they are unused from then on, and a reader
/// rejects the whole record if it has such a page.
#[derive(Debug)]
pub(crate) struct RecordBuilder {
    bytes: Vec<u8>,
    pages: Vec<(LogPage, usize)>,
    /// Bytes of the file from this commit on.
    file_length: u64,
    /// True to log every changed page whole.
    full_pages: bool,
}

impl RecordBuilder {
    /// Creates an empty record of a commit that makes the file `file_length` bytes long. Reuses the
    /// buffer of an earlier record: fresh memory costs a page fault for each page.
    pub(super) fn new(file_length: u64, full_pages: bool, mut reused: Vec<u8>) -> RecordBuilder {
        reused.clear();
        reused.resize(size_of::<LogRecord>(), 0);
        RecordBuilder { bytes: reused, pages: Vec::new(), file_length, full_pages }
    }

    fn is_behind_the_end(&self, page: u64) -> bool {
        page >= pages_of(self.file_length) && !mutated(Mutant::RecordPastTheEnd)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Numbers of the pages that the record changes.
    pub(super) fn page_numbers(&self) -> impl Iterator<Item = u64> {
        self.pages.iter().map(|(page, _)| page.page)
    }

    /// Bytes that the record takes in the log.
    pub(super) fn bytes_in_log(&self) -> u64 {
        (self.bytes.len() as u64).next_multiple_of(LOG_ALIGN)
    }

    /// Adds the given lines of a page. Ignores an empty mask, and pages after the end of the file.
    pub(super) fn push(&mut self, page: u64, lines: u64, now: &Page) {
        if lines == 0 || self.is_behind_the_end(page) {
            return;
        }
        let whole = self.full_pages || lines.count_ones() > LINES_BEFORE_WHOLE_PAGE;
        let lines = if whole { u64::MAX } else { lines };
        self.bytes.extend_from_slice(bytes_of(&LogPage { page, lines }));
        self.pages.push((LogPage { page, lines }, self.bytes.len()));
        if lines == u64::MAX {
            self.bytes.extend_from_slice(now);
            return;
        }
        let mut rest = lines;
        while rest != 0 {
            let at = rest.trailing_zeros() as usize * LINE_BYTES;
            self.bytes.extend_from_slice(&now[at..at + LINE_BYTES]);
            rest &= rest - 1;
        }
    }

    /// Adds the lines of `mask`, lowest first, without having the whole page.
    pub(super) fn push_lines(&mut self, page: u64, mask: u64, lines: &[u8]) {
        debug_assert_eq!(lines.len(), mask.count_ones() as usize * LINE_BYTES);
        if self.is_behind_the_end(page) {
            return;
        }
        self.bytes.extend_from_slice(bytes_of(&LogPage { page, lines: mask }));
        self.pages.push((LogPage { page, lines: mask }, self.bytes.len()));
        self.bytes.extend_from_slice(lines);
    }

    /// Returns the bytes, and for each page its number, its mask, and the offset of its lines.
    pub(super) fn into_parts(self) -> (Vec<u8>, Vec<(u64, u64, usize)>) {
        let pages = self.pages.iter().map(|(page, at)| (page.page, page.lines, *at)).collect();
        (self.bytes, pages)
    }

    /// Writes the head. Returns the record's bytes, padded to the log's alignment, and the checksum
    /// that the next record chains to.
    pub(super) fn seal(&mut self, place: &Sealing) -> (&[u8], u32) {
        let head_bytes = size_of::<LogRecord>();
        let body_end = self
            .pages
            .last()
            .map_or(head_bytes, |(page, at)| at + page.lines.count_ones() as usize * LINE_BYTES);
        self.bytes.truncate(body_end);
        self.bytes.resize(body_end.next_multiple_of(LOG_ALIGN as usize), 0);
        let mut head = LogRecord {
            magic: LOG_RECORD_MAGIC,
            salt: place.salt,
            index: place.index,
            sequence: place.sequence,
            object_uuid: place.object_uuid,
            body_length: (body_end - head_bytes) as u64,
            file_length: self.file_length,
            page_count: self.pages.len() as u64,
            durable: place.durable,
            previous: place.previous,
            rest_checksum: rest_checksum(&self.bytes),
            kind: RECORD_OF_LINES,
            ..LogRecord::zeroed()
        };
        self.bytes[..head_bytes].copy_from_slice(bytes_of(&head));
        head.checksum = sector_checksum(&self.bytes);
        self.bytes[..head_bytes].copy_from_slice(bytes_of(&head));
        (&self.bytes, head.checksum)
    }
}

impl RecordBuilder {
    /// Like [`seal`](RecordBuilder::seal) in format 1, for a log of an earlier build that cannot be
    /// emptied yet. Its head is shorter and ends at the same offset as in format 2.
    pub(super) fn seal_1(&mut self, place: &Sealing) -> (&[u8], u32) {
        let (head_bytes, head_at) = (size_of::<LogRecord1>(), HEAD_1_AT);
        let body_at = head_at + head_bytes;
        let body_end = self
            .pages
            .last()
            .map_or(body_at, |(page, at)| at + page.lines.count_ones() as usize * LINE_BYTES);
        let follows_durable = place.durable + 1 == place.index;
        let mut head = LogRecord1 {
            magic: LOG_RECORD_1_MAGIC,
            salt: place.salt,
            sequence: place.sequence,
            body_length: (body_end - body_at) as u64,
            file_length: self.file_length,
            page_count: self.pages.len() as u64,
            previous: place.previous,
            flags: if follows_durable { RECORD_1_FOLLOWS_DURABLE } else { 0 },
            ..LogRecord1::zeroed()
        };
        head.checksum = checksum_1(&head, &self.bytes[body_at..body_end]);
        self.bytes[head_at..body_at].copy_from_slice(bytes_of(&head));
        let length = (body_end - head_at).next_multiple_of(LOG_ALIGN as usize);
        self.bytes.truncate(body_end);
        self.bytes.resize(head_at + length, 0);
        (&self.bytes[head_at..], head.checksum)
    }
}

/// Offset of a head of format 1 in a record's bytes, which have room for one of format 2.
const HEAD_1_AT: usize = size_of::<LogRecord>() - size_of::<LogRecord1>();

/// CRC32C of a record of format 1: its head with a zero checksum, then its body.
pub(super) fn checksum_1(head: &LogRecord1, body: &[u8]) -> u32 {
    crc32c(&[bytes_of(&LogRecord1 { checksum: 0, ..*head }), body])
}

/// Fields of a record's head that do not come from its contents.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sealing {
    pub(super) sequence: u64,
    pub(super) index: u64,
    pub(super) salt: u64,
    pub(super) object_uuid: [u8; 16],
    pub(super) previous: u32,
    pub(super) durable: u64,
}

/// Computes the checksum in a head: of the record's first sector without the checksum itself.
pub(super) fn sector_checksum(record: &[u8]) -> u32 {
    const AT: std::ops::Range<usize> =
        offset_of!(LogRecord, checksum)..offset_of!(LogRecord, checksum) + size_of::<u32>();
    let sector = &record[..record.len().min(LOG_ALIGN as usize)];
    crc32c(&[&sector[..AT.start], &[0; AT.end - AT.start], &sector[AT.end..]])
}

/// Computes the checksum of the record after its first sector.
pub(super) fn rest_checksum(record: &[u8]) -> u32 {
    match record.get(LOG_ALIGN as usize..) {
        None | Some([]) => 0,
        Some(rest) => crc32c(&[rest]),
    }
}

/// Number of pages that a record of a file of this length may refer to.
fn pages_of(file_length: u64) -> u64 {
    file_length.min(FILE_BYTES_MAX) / PAGE_BYTES
}

/// A commit read from a log, with a correct checksum.
#[derive(Debug)]
pub(crate) struct Commit {
    pages: Vec<(LogPage, usize)>,
    body: Vec<u8>,
}

impl Commit {
    /// Parses a checked body; `None` if its pages do not match its length, or are outside of the
    /// object.
    pub(super) fn parse(file_length: u64, page_count: u64, body: Vec<u8>) -> Option<Commit> {
        let mut pages = Vec::new();
        let mut at = 0;
        while at < body.len() {
            let end = at.checked_add(size_of::<LogPage>())?;
            let page: LogPage = bytemuck::pod_read_unaligned(body.get(at..end)?);
            if page.page >= pages_of(file_length) {
                return None;
            }
            pages.push((page, end));
            at = end + page.lines.count_ones() as usize * LINE_BYTES;
        }
        let complete = at == body.len() && pages.len() as u64 == page_count;
        complete.then_some(Commit { pages, body })
    }

    /// Returns the changed lines: page number in the file, mask, and bytes, lowest line first.
    pub(crate) fn pages(&self) -> impl Iterator<Item = (u64, u64, &[u8])> {
        self.pages.iter().map(|(page, at)| {
            let length = page.lines.count_ones() as usize * LINE_BYTES;
            (page.page, page.lines, &self.body[*at..*at + length])
        })
    }
}

/// Calls `each` with the offset in the page and the bytes of every run of lines in `mask`.
pub(crate) fn for_each_run(mask: u64, lines: &[u8], mut each: impl FnMut(usize, &[u8])) {
    let mut line = 0;
    let mut taken = 0;
    while line < PAGE_LINES {
        let rest = mask >> line;
        if rest == 0 {
            return;
        }
        line += rest.trailing_zeros() as usize;
        let run = (mask >> line).trailing_ones() as usize;
        let bytes = &lines[taken * LINE_BYTES..(taken + run) * LINE_BYTES];
        each(line * LINE_BYTES, bytes);
        taken += run;
        line += run;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seals a record and parses it again.
    fn seal_and_parse(mut builder: RecordBuilder) -> (LogRecord, Vec<u8>, Option<Commit>) {
        let (bytes, crc) = builder.seal(&Sealing { sequence: 5, index: 3, ..Sealing::default() });
        assert!(bytes.len().is_multiple_of(LOG_ALIGN as usize));
        let head_bytes = size_of::<LogRecord>();
        let head: LogRecord = bytemuck::pod_read_unaligned(&bytes[..head_bytes]);
        assert_eq!((head.checksum, head.checksum), (crc, sector_checksum(bytes)));
        assert_eq!(head.rest_checksum, rest_checksum(bytes));
        let body = bytes[head_bytes..head_bytes + head.body_length as usize].to_vec();
        (head, body.clone(), Commit::parse(head.file_length, head.page_count, body))
    }

    #[test]
    fn a_parsed_record_has_the_lines_that_were_pushed() {
        let mut page = [0u8; PAGE_BYTES as usize];
        for (i, byte) in page.iter_mut().enumerate() {
            *byte = (i / LINE_BYTES) as u8 + 1;
        }
        let mut builder = RecordBuilder::new(40960, false, Vec::new());
        builder.push(3, 0b1011, &page);
        builder.push(4, 0, &page);
        builder.push(9, u64::MAX >> 10, &page);
        let (head, _, commit) = seal_and_parse(builder);
        assert_eq!((head.sequence, head.index, head.file_length), (5, 3, 40960));
        let mut seen = Vec::new();
        for (number, mask, lines) in commit.unwrap().pages() {
            for_each_run(mask, lines, |at, run| seen.push((number, at, run.len(), run[0])));
        }
        assert_eq!(seen, [(3, 0, 128, 1), (3, 192, 64, 4), (9, 0, 4096, 1)]);
    }

    #[test]
    fn full_pages_are_logged_whole() {
        let mut builder = RecordBuilder::new(40960, true, Vec::new());
        builder.push(3, 1, &[7; PAGE_BYTES as usize]);
        builder.push(4, 0, &[7; PAGE_BYTES as usize]);
        let (bytes, pages) = builder.into_parts();
        assert_eq!(pages, [(3, u64::MAX, 128 + 16)]);
        assert_eq!(bytes.len(), 128 + 16 + 4096);
    }

    #[test]
    fn pages_after_the_end_of_the_file_are_left_out_so_the_record_stays_readable() {
        let page = [7; PAGE_BYTES as usize];
        for whole in [false, true] {
            let mut builder = RecordBuilder::new(4 * PAGE_BYTES, whole, Vec::new());
            for number in [3, 4, 9, u64::MAX] {
                builder.push(number, 0b11, &page);
                builder.push_lines(number, 0b11, &page[..2 * LINE_BYTES]);
            }
            let (head, _, commit) = seal_and_parse(builder);
            let commit = commit.unwrap();
            assert_eq!(commit.pages().map(|(number, ..)| number).collect::<Vec<_>>(), [3, 3]);
            assert_eq!(head.file_length, 4 * PAGE_BYTES);
        }
    }

    #[test]
    fn a_body_that_does_not_add_up_is_refused() {
        let mut builder = RecordBuilder::new(8192, false, Vec::new());
        builder.push(1, 1, &[1; PAGE_BYTES as usize]);
        let (head, body, _) = seal_and_parse(builder);
        let parse = |pages, body: &[u8]| Commit::parse(head.file_length, pages, body.to_vec());
        assert!(parse(1, &body).is_some());
        assert!(parse(1, &body[..body.len() - 1]).is_none());
        assert!(parse(2, &body).is_none());
    }

    #[test]
    fn every_byte_of_a_record_is_under_a_checksum_including_its_padding() {
        let mut builder = RecordBuilder::new(40960, false, Vec::new());
        builder.push(3, 0xff_ffff, &[5; PAGE_BYTES as usize]);
        let (bytes, _) = builder.seal(&Sealing::default());
        let sums = |bytes: &[u8]| (sector_checksum(bytes), rest_checksum(bytes));
        let mut bytes = bytes.to_vec();
        let whole = sums(&bytes);
        for at in (0..bytes.len()).filter(|at| !(4..8).contains(at)) {
            bytes[at] ^= 1;
            assert_ne!(sums(&bytes), whole, "byte {at}");
            bytes[at] ^= 1;
        }
    }
}
