//! The committed lines that are not in the object file, by page.
//!
//! An overlay holds the newest image of every line in a log's records, and of every line that is
//! staged for the log. A committed page is the file's page with the overlay's lines over it:
//! writers compare with it and roll back to it, readers and recovery build it. Laying an overlay
//! over pages that already have part of it changes nothing more, so a crash at any point of an
//! apply is harmless. Page 0 must be written last.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use super::record::{Commit, Page, for_each_run};
use crate::error::Result;
use crate::format::{LINE_BYTES, PAGE_BYTES, PAGE_LINES};
use crate::mutate::{Mutant, mutated};
use crate::storage::File;

/// Maximum bytes of adjacent pages that are combined into one write. This bounds the page-cache
/// folios that such a write creates, which keeps later small writes into them cheap on ext4.
const WRITE_BYTES_MAX: usize = 64 * 1024;

/// Newest lines by page number in the object file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overlay {
    pages: HashMap<u64, Lines, BuildHasherDefault<PageHasher>>,
    bytes: usize,
}

/// Some lines of one page.
#[derive(Clone, Debug)]
struct Lines {
    /// Bit `i` is set if line `i` is present.
    mask: u64,
    bytes: Bytes,
}

/// Bytes of lines, lowest line first.
#[derive(Clone, Debug)]
enum Bytes {
    Own(Vec<u8>),
    /// Part of a record, from this offset on.
    OfRecord(Arc<Vec<u8>>, usize),
}

/// Lines of at least this many bytes stay in their record instead of being copied. The record lives
/// as long as one of them is the newest. The size of the log bounds all records that were written
/// to it; it does not bound records that are only staged.
const SHARED_BYTES_MIN: usize = 1024;

impl Overlay {
    /// Combines these records, oldest first.
    pub(crate) fn of_commits(commits: &[Commit]) -> Overlay {
        let mut overlay = Overlay::default();
        for commit in commits {
            overlay.add_commit(commit);
        }
        overlay
    }

    /// Adds a newer commit.
    pub(crate) fn add_commit(&mut self, commit: &Commit) {
        for (page, mask, lines) in commit.pages() {
            self.add(page, mask, lines);
        }
    }

    /// Adds a newer overlay.
    pub(super) fn add_all(&mut self, newer: &Overlay) {
        for (page, lines) in &newer.pages {
            self.add(*page, lines.mask, lines.bytes());
        }
    }

    /// Adds newer lines of one page: `lines` holds the lines in `mask`.
    pub(crate) fn add(&mut self, page: u64, mask: u64, lines: &[u8]) {
        if mask == 0 {
            return;
        }
        match self.pages.entry(page) {
            std::collections::hash_map::Entry::Vacant(place) => {
                self.bytes += lines.len();
                place.insert(Lines { mask, bytes: Bytes::Own(lines.to_vec()) });
            }
            std::collections::hash_map::Entry::Occupied(mut held) => {
                let held = held.get_mut();
                self.bytes -= held.bytes().len();
                held.add(mask, lines);
                self.bytes += held.bytes().len();
            }
        }
    }

    /// Adds newer lines from a record, starting at byte `at`. Does not copy them if they are many
    /// and replace all existing lines of the page.
    pub(super) fn add_shared(&mut self, page: u64, mask: u64, record: &Arc<Vec<u8>>, at: usize) {
        let length = mask.count_ones() as usize * LINE_BYTES;
        let replaces = self.pages.get(&page).is_none_or(|held| held.mask & !mask == 0);
        if length < SHARED_BYTES_MIN || !replaces {
            return self.add(page, mask, &record[at..at + length]);
        }
        let lines = Lines { mask, bytes: Bytes::OfRecord(Arc::clone(record), at) };
        let before = self.pages.insert(page, lines);
        self.bytes = self.bytes + length - before.map_or(0, |held| held.bytes().len());
    }

    /// Lays the page's lines over a copy of the page.
    pub(crate) fn patch(&self, number: u64, page: &mut Page) {
        if let Some(lines) = self.pages.get(&number) {
            for_each_run(lines.mask, lines.bytes(), |at, run| {
                page[at..at + run.len()].copy_from_slice(run);
            });
        }
    }

    /// Returns the lines of one page: mask and bytes.
    pub(crate) fn lines(&self, page: u64) -> Option<(u64, &[u8])> {
        self.pages.get(&page).map(|lines| (lines.mask, lines.bytes()))
    }

    /// Returns one line, if it is present.
    pub(crate) fn line(&self, page: u64, index: usize) -> Option<&[u8; LINE_BYTES]> {
        let lines = self.pages.get(&page)?;
        if lines.mask >> index & 1 == 0 {
            return None;
        }
        let before = (lines.mask & ((1 << index) - 1)).count_ones() as usize;
        lines.bytes()[before * LINE_BYTES..].first_chunk()
    }

    /// Returns the lines in which `now` differs from the committed page; `stored` is the file's
    /// page.
    pub(crate) fn changed_lines(&self, number: u64, now: &Page, stored: &Page) -> u64 {
        match self.pages.get(&number) {
            None => lines_that_differ(now, stored),
            Some(_) => {
                let mut committed = *stored;
                self.patch(number, &mut committed);
                lines_that_differ(now, &committed)
            }
        }
    }

    /// Returns true if the overlay is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Bytes of all lines.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Removes all lines.
    pub(crate) fn clear(&mut self) {
        self.pages.clear();
        self.bytes = 0;
    }

    /// Returns the page number after the last page with lines.
    pub(crate) fn end(&self) -> u64 {
        self.pages.keys().max().map_or(0, |last| last + 1)
    }

    /// Returns the page numbers, ascending.
    pub(crate) fn page_numbers(&self) -> Vec<u64> {
        let mut numbers: Vec<u64> = self.pages.keys().copied().collect();
        numbers.sort_unstable();
        numbers
    }

    /// Writes all lines to `object`, page 0 last, without a flush. So the sequence number in the
    /// file never runs ahead of the pages that this process wrote.
    ///
    /// `stored` reads a page of the file.
    pub(crate) fn write_to(
        &self,
        object: &dyn File,
        stored: impl Fn(u64, &mut Page) -> Result<()>,
    ) -> Result<()> {
        let numbers = self.page_numbers();
        let (zero, others) = match numbers.split_first() {
            Some((0, others)) => (Some(0), others),
            _ => (None, &numbers[..]),
        };
        if let Some(page) = zero.filter(|_| mutated(Mutant::PageZeroFirst)) {
            self.write_page(page, object, &stored)?;
        }
        let mut buffer = Vec::with_capacity(WRITE_BYTES_MAX);
        let pages_max = WRITE_BYTES_MAX / PAGE_BYTES as usize;
        for run in others.chunk_by(|a, b| a + 1 == *b).flat_map(|run| run.chunks(pages_max)) {
            if let [page] = run {
                self.write_page(*page, object, &stored)?;
                continue;
            }
            buffer.clear();
            for page in run {
                buffer.extend_from_slice(&self.committed(*page, &stored)?);
            }
            object.write_at(&buffer, run[0] * PAGE_BYTES)?;
        }
        match zero {
            Some(page) => self.write_page(page, object, &stored),
            None => Ok(()),
        }
    }

    /// Writes one page: a single run of lines alone, otherwise the whole page in one call.
    fn write_page(
        &self,
        page: u64,
        object: &dyn File,
        stored: &impl Fn(u64, &mut Page) -> Result<()>,
    ) -> Result<()> {
        let Some(lines) = self.pages.get(&page) else { return Ok(()) };
        let offset = page * PAGE_BYTES;
        let first = lines.mask.trailing_zeros();
        if (lines.mask >> first).trailing_ones() == lines.mask.count_ones() {
            return object.write_at(lines.bytes(), offset + u64::from(first) * LINE_BYTES as u64);
        }
        object.write_at(&self.committed(page, stored)?, offset)
    }

    /// Returns the committed page; reads the file's page only if needed.
    fn committed(&self, page: u64, stored: &impl Fn(u64, &mut Page) -> Result<()>) -> Result<Page> {
        let mut image = [0; PAGE_BYTES as usize];
        if self.pages.get(&page).is_none_or(|lines| lines.mask != u64::MAX) {
            stored(page, &mut image)?;
        }
        self.patch(page, &mut image);
        Ok(image)
    }
}

impl Lines {
    fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Own(bytes) => bytes,
            Bytes::OfRecord(record, at) => {
                &record[*at..*at + self.mask.count_ones() as usize * LINE_BYTES]
            }
        }
    }

    fn add(&mut self, mask: u64, lines: &[u8]) {
        if self.mask & !mask == 0 {
            self.mask = mask;
            match &mut self.bytes {
                Bytes::Own(bytes) => {
                    bytes.clear();
                    bytes.extend_from_slice(lines);
                }
                shared => *shared = Bytes::Own(lines.to_vec()),
            }
            return;
        }
        let mut page = [0; PAGE_BYTES as usize];
        for (mask, lines) in [(self.mask, self.bytes()), (mask, lines)] {
            for_each_run(mask, lines, |at, run| page[at..at + run.len()].copy_from_slice(run));
        }
        self.mask |= mask;
        let mut bytes = Vec::with_capacity(self.mask.count_ones() as usize * LINE_BYTES);
        let mut rest = self.mask;
        while rest != 0 {
            let at = rest.trailing_zeros() as usize * LINE_BYTES;
            bytes.extend_from_slice(&page[at..at + LINE_BYTES]);
            rest &= rest - 1;
        }
        self.bytes = Bytes::Own(bytes);
    }
}

/// Returns a bit for each line, set if the two pages differ there. Costs less than a checksum of
/// the page: the comparison compiles to vector instructions.
fn lines_that_differ(now: &Page, clean: &Page) -> u64 {
    let mut mask = 0;
    for line in 0..PAGE_LINES {
        let at = line * LINE_BYTES;
        let changed = now[at..at + LINE_BYTES] != clean[at..at + LINE_BYTES];
        mask |= u64::from(changed) << line;
    }
    mask
}

/// Page numbers are small integers and not chosen by an attacker, so one multiplication spreads
/// them well enough.
#[derive(Default)]
pub(crate) struct PageHasher(u64);

impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // The bits of the golden ratio. The table uses the top seven bits and the low bits.
        let product = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ product >> 32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_changed_byte_sets_its_lines_bit() {
        let clean = [7; PAGE_BYTES as usize];
        assert_eq!(lines_that_differ(&clean, &clean), 0);
        for at in [0, 63, 64, 2000, 4095] {
            let mut now = clean;
            now[at] ^= 0x10;
            assert_eq!(lines_that_differ(&now, &clean), 1 << (at / LINE_BYTES));
        }
        assert_eq!(lines_that_differ(&[8; PAGE_BYTES as usize], &clean), u64::MAX);
    }

    fn line(byte: u8) -> [u8; LINE_BYTES] {
        [byte; LINE_BYTES]
    }

    #[test]
    fn the_newest_image_of_every_line_wins() {
        let mut overlay = Overlay::default();
        overlay.add(7, 0b101, &[line(1), line(2)].concat());
        overlay.add(7, 0b110, &[line(3), line(4)].concat());
        assert_eq!(overlay.lines(7).unwrap().0, 0b111);
        assert_eq!(overlay.line(7, 2), Some(&line(4)));
        assert_eq!(overlay.line(7, 3), None);
        let mut page = [9; PAGE_BYTES as usize];
        overlay.patch(7, &mut page);
        assert_eq!(page[..3 * LINE_BYTES], [line(1), line(3), line(4)].concat());
        assert_eq!(page[3 * LINE_BYTES], 9);
        assert_eq!(overlay.bytes(), 3 * LINE_BYTES);
        overlay.add(7, 0b111, &[line(5), line(5), line(5)].concat());
        assert_eq!(overlay.lines(7).unwrap().1, [line(5); 3].concat());
    }

    #[test]
    fn shared_lines_read_like_copied_lines() {
        let record = Arc::new((0..4096).map(|i| (i / 64) as u8).collect::<Vec<u8>>());
        let mut overlay = Overlay::default();
        overlay.add_shared(3, 0xffff << 4, &record, 256);
        assert_eq!(Arc::strong_count(&record), 2, "many lines are not copied");
        assert_eq!(overlay.line(3, 4), Some(&line(4)));
        assert_eq!(overlay.bytes(), 1024);
        overlay.add_shared(4, 0b11, &record, 0);
        assert_eq!(Arc::strong_count(&record), 2, "few lines are copied");
        // Lines that do not replace all existing ones are merged with them.
        overlay.add_shared(3, 0xffff << 8, &record, 2048);
        assert_eq!(overlay.lines(3).unwrap().0, 0xf_ffff << 4);
        assert_eq!((overlay.line(3, 4), overlay.line(3, 8)), (Some(&line(4)), Some(&line(32))));
        assert_eq!(overlay.bytes(), (20 + 2) * LINE_BYTES);
        assert_eq!(Arc::strong_count(&record), 1);
        overlay.add_shared(3, u64::MAX, &record, 0);
        overlay.add(3, u64::MAX, &[9; 4096]);
        assert_eq!(overlay.line(3, 63), Some(&line(9)));
        assert_eq!(Arc::strong_count(&record), 1);
    }

    #[test]
    fn a_page_is_compared_with_the_committed_page_and_not_with_the_file_s_page() {
        let mut overlay = Overlay::default();
        let stored = [0; PAGE_BYTES as usize];
        overlay.add(1, 0b10, &line(1));
        let mut now = stored;
        assert_eq!(overlay.changed_lines(1, &now, &stored), 0b10, "line 1 was reset");
        now[LINE_BYTES..2 * LINE_BYTES].fill(1);
        assert_eq!(overlay.changed_lines(1, &now, &stored), 0);
        assert_eq!(overlay.changed_lines(2, &now, &stored), 0b10);
    }
}
