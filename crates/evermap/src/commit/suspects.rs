//! Finds words of changed lines that look like pointers to other memory of the process.
//!
//! Such a word is an address that is invalid in the next process, or a number that looks like an
//! address. A commit tests only changed lines, first against a few [ranges](super::ranges) that
//! cover all such addresses: most pages end there. The remaining words are looked up in the table
//! of the process's mappings, which must be read again if a word may belong to a new mapping.

use std::sync::Arc;

use super::overlay::Overlay;
use super::ranges::Ranges;
use super::record::Page;
use crate::address::{Elsewhere, Leads, heap_end};
use crate::error::Result;
use crate::format::{LINE_BYTES, RegionRecord};

/// Suspects are judged once at least this many are collected, and at the end of the commit.
const SUSPECTS_MAX: usize = 4096;
const WORD_BYTES: usize = size_of::<u64>();
const WORDS_OF_LINE: usize = LINE_BYTES / WORD_BYTES;

/// A word that looks like a pointer out of the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Suspect {
    /// Address of the word in the object.
    pub(crate) at: u64,
    /// The address that it holds.
    pub(crate) word: u64,
    /// Name of the mapping that it leads into.
    pub(crate) into: Arc<str>,
}

/// Decides about suspects; an error ends the commit.
type Judge<'a> = dyn FnMut(Vec<Suspect>) -> Result<()> + 'a;

/// One commit's search for suspects. They are judged a few thousand at a time.
pub(super) struct SuspectSearch<'a> {
    pub(super) suspects: &'a mut Suspects,
    pub(super) judge: &'a mut Judge<'a>,
}

impl SuspectSearch<'_> {
    /// Searches the changed lines of a page. `page` is its address and its number in the file;
    /// `stored` is the file's page and the overlay.
    pub(super) fn at(
        &mut self,
        page: (u64, u64),
        lines: u64,
        now: &Page,
        stored: (&Page, &Overlay),
    ) -> Result<()> {
        self.suspects.search_lines(page, lines, now, stored);
        self.judge_if_many()
    }

    /// Searches a page that no commit had yet.
    pub(super) fn at_fresh(&mut self, page: u64, now: &Page) -> Result<()> {
        self.suspects.search_fresh(page, now);
        self.judge_if_many()
    }

    fn judge_if_many(&mut self) -> Result<()> {
        match self.suspects.found.len().max(self.suspects.near.len()) >= SUSPECTS_MAX {
            true => self.end(),
            false => Ok(()),
        }
    }

    /// Judges the rest.
    pub(super) fn end(&mut self) -> Result<()> {
        self.suspects.judge(self.judge)
    }
}

/// Finds suspects in what a commit changes.
#[derive(Debug)]
pub(crate) struct Suspects {
    table: Arc<Elsewhere>,
    /// End of the C heap when `ranges` were made.
    heap_end: u64,
    /// Addresses of the store, which are legal: first and end.
    arenas: Vec<(u64, u64)>,
    /// Registered code, which is legal, too.
    registered: Vec<(u64, u64)>,
    /// The object's data, without the library's own metadata: first and end.
    data: Vec<(u64, u64)>,
    ranges: Ranges,
    found: Vec<Suspect>,
    /// Words near a mapping: address and word. A newer table may have a mapping for them.
    near: Vec<(u64, u64)>,
}

impl Suspects {
    /// Creates the search for an object of a store with these arenas. The first commit reads the
    /// table of mappings, because a session may make none.
    pub(crate) fn new(arenas: Vec<(u64, u64)>) -> Suspects {
        Suspects {
            table: Arc::new(Elsewhere::unread()),
            heap_end: 0,
            arenas,
            registered: Vec::new(),
            data: Vec::new(),
            ranges: Ranges::new(std::iter::empty(), &[]),
            found: Vec::new(),
            near: Vec::new(),
        }
    }

    /// Makes these addresses legal in addition to the store's, and no others.
    pub(crate) fn set_registered(&mut self, registered: Vec<(u64, u64)>) {
        self.registered = registered;
        self.take_ranges();
    }

    fn take_ranges(&mut self) {
        let legal: Vec<_> = self.arenas.iter().chain(&self.registered).copied().collect();
        self.ranges = Ranges::new(self.table.ranges(), &legal);
    }

    fn take_table(&mut self, table: Arc<Elsewhere>) {
        let heap_end = heap_end();
        if !Arc::ptr_eq(&table, &self.table) || heap_end != self.heap_end {
            (self.table, self.heap_end) = (table, heap_end);
            self.take_ranges();
        }
    }

    /// Begins a commit of an object with these regions.
    pub(super) fn begin(&mut self, regions: &[RegionRecord]) {
        self.take_table(Elsewhere::now());
        self.found.clear();
        self.near.clear();
        self.data.clear();
        self.data.extend(regions.iter().map(|r| (r.base + r.meta_length, r.base + r.length)));
    }

    #[inline]
    fn search_lines(
        &mut self,
        (page, number): (u64, u64),
        lines: u64,
        now: &Page,
        (stored, overlay): (&Page, &Overlay),
    ) {
        let leading = self.ranges.lines_with_suspects(now, lines);
        for line in bits(leading) {
            let at = line * LINE_BYTES;
            let committed = match overlay.line(number, line) {
                Some(line) => &line[..],
                None => &stored[at..at + LINE_BYTES],
            };
            self.search_line(page + at as u64, &now[at..at + LINE_BYTES], committed);
        }
    }

    fn search_fresh(&mut self, page: u64, now: &Page) {
        for line in bits(self.ranges.lines_with_suspects(now, u64::MAX)) {
            let at = line * LINE_BYTES;
            self.search_line(page + at as u64, &now[at..at + LINE_BYTES], &[0; LINE_BYTES]);
        }
    }

    fn search_line(&mut self, line: u64, now: &[u8], committed: &[u8]) {
        let (now, committed) = (now.as_chunks::<WORD_BYTES>().0, committed.as_chunks().0);
        for (index, (word, before)) in now.iter().zip(committed).enumerate() {
            let value = u64::from_le_bytes(*word);
            if word != before && self.ranges.has(value) {
                self.check_word(line + (index * WORD_BYTES) as u64, value);
            }
        }
        const _: () = assert!(WORDS_OF_LINE * WORD_BYTES == LINE_BYTES);
    }

    fn check_word(&mut self, at: u64, word: u64) {
        let is_in = |ranges: &[(u64, u64)], address: u64| {
            ranges.iter().any(|(first, end)| address >= *first && address < *end)
        };
        if is_in(&self.arenas, word) || is_in(&self.registered, word) || !is_in(&self.data, at) {
            return;
        }
        match self.table.leads(word) {
            Leads::Into(place) => {
                let into = Arc::clone(&place.name);
                self.found.push(Suspect { at, word, into });
            }
            Leads::Near => self.near.push((at, word)),
            Leads::Nowhere => {}
        }
    }

    /// Passes the suspects to `judge`, ordered by address.
    fn judge(&mut self, judge: &mut Judge<'_>) -> Result<()> {
        let near = std::mem::take(&mut self.near);
        if !near.is_empty()
            && let Some(newer) = self.table.renewed(near.iter().map(|(_, word)| *word))
        {
            self.take_table(newer);
            for (at, word) in near {
                if let Leads::Into(place) = self.table.leads(word) {
                    let into = Arc::clone(&place.name);
                    self.found.push(Suspect { at, word, into });
                }
            }
        }
        if self.found.is_empty() {
            return Ok(());
        }
        self.found.sort_unstable_by_key(|suspect| suspect.at);
        judge(std::mem::take(&mut self.found))
    }
}

/// Returns the numbers of the set bits.
fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (bit < u64::BITS).then_some(bit as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::PAGE_BYTES;

    fn page_of(word: u64, at: usize) -> Page {
        let mut page = [0xff; PAGE_BYTES as usize];
        page[at..at + 8].copy_from_slice(&word.to_le_bytes());
        page
    }

    const REGION: RegionRecord = RegionRecord {
        base: 0x2000_0000_0000,
        capacity: 1 << 20,
        length: 1 << 20,
        file_offset: 0,
        meta_length: 1 << 16,
        checksums: 0,
    };
    const PAGE: u64 = 0x2000_0001_0000;

    fn suspects() -> Suspects {
        let mut suspects = Suspects::new(vec![(0x2000_0000_0000, 0x2010_0000_0000)]);
        suspects.begin(&[REGION]);
        suspects
    }

    fn found(suspects: &mut Suspects) -> Vec<Suspect> {
        let mut found = Vec::new();
        suspects
            .judge(&mut |mut more| {
                found.append(&mut more);
                Ok(())
            })
            .unwrap();
        found
    }

    #[test]
    fn only_words_that_changed_in_the_objects_data_are_found() {
        let local = 7u64;
        let word = &raw const local as u64;
        let (now, none) = (page_of(word, 128), Overlay::default());
        let zeros = [0; PAGE_BYTES as usize];
        let mut suspects = suspects();
        let mut search = |page: u64, lines: u64, stored: &Page| {
            suspects.begin(&[REGION]);
            suspects.search_lines((page, 16), lines, &now, (stored, &none));
            found(&mut suspects).iter().map(|s| (s.at, s.word)).collect::<Vec<_>>()
        };
        assert_eq!(search(PAGE, 1 << 2, &zeros), [(PAGE + 128, word)]);
        assert_eq!(search(PAGE, u64::MAX, &zeros), [(PAGE + 128, word)]);
        assert_eq!(search(PAGE, 1 << 3, &zeros), []);
        assert_eq!(search(PAGE, u64::MAX, &now), [], "the word is unchanged");
        assert_eq!(search(REGION.base + 8192, u64::MAX, &zeros), [], "the library's metadata");
    }

    #[test]
    fn memory_mapped_during_a_commit_is_found() {
        let mut suspects = suspects();
        // Larger than the memory that malloc keeps, so it is mapped now.
        let new = vec![1u8; 96 << 20];
        let word = new.as_ptr() as u64 + 4096;
        suspects.search_fresh(PAGE, &page_of(word, 8));
        let found = found(&mut suspects);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].at, found[0].word), (PAGE + 8, word));
    }

    #[test]
    fn addresses_of_the_store_and_registered_ones_are_legal() {
        let local = 7u64;
        let word = &raw const local as u64;
        let mut suspects = suspects();
        suspects.search_fresh(PAGE, &page_of(0x2000_0004_0000, 8));
        suspects.set_registered(vec![(word, word + 8)]);
        suspects.search_fresh(PAGE, &page_of(word, 8));
        assert_eq!(found(&mut suspects), []);
    }
}
