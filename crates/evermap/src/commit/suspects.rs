//! Words of changed lines that lead out of the object, into other memory of the process.
//!
//! Such a word is an address that means nothing in the next process, or a number that looks like
//! one. A commit looks only at lines that changed, and first at the upper halves of their words:
//! most lines end there. What passes is looked up in the table of the process's mappings.

use std::sync::Arc;

use super::diff::Page;
use super::overlay::Overlay;
use crate::address::{ADDRESS_END, Elsewhere, Leads};
use crate::format::{LINE_BYTES, PAGE_BYTES, RegionRecord};

/// Words remembered of one commit; more are counted.
const SUSPECTS_MAX: usize = 4096;
const WORD_BYTES: usize = size_of::<u64>();
const WORDS_OF_LINE: usize = LINE_BYTES / WORD_BYTES;
/// Pages with more changed lines than this are looked at as a whole first.
const LINES_BEFORE_WHOLE_PAGE: u32 = 16;

/// A word that leads out of the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Suspect {
    /// Address of the word in the object.
    pub(crate) at: u64,
    /// The address that it holds.
    pub(crate) word: u64,
    /// Name of the mapping that it leads into.
    pub(crate) into: String,
}

/// Looks for suspects in what a commit changes.
#[derive(Debug)]
pub(crate) struct Suspects {
    table: Arc<Elsewhere>,
    /// Addresses that are legal: those of the store, and of registered code. First and end.
    legal: Vec<(u64, u64)>,
    /// The objects' data, without the library's own bookkeeping. First and end.
    data: Vec<(u64, u64)>,
    /// What words have to be above to be looked up, and the same of their upper halves.
    lowest: u64,
    lowest_half: u32,
    found: Vec<Suspect>,
    /// Words near a mapping: address and word. A newer table may know them.
    near: Vec<(u64, u64)>,
}

impl Suspects {
    /// For an object of a store with these arenas.
    pub(crate) fn new(legal: Vec<(u64, u64)>) -> Suspects {
        let table = Elsewhere::now();
        let (data, found, near) = (Vec::new(), Vec::new(), Vec::new());
        let mut suspects = Suspects { table, legal, data, lowest: 0, lowest_half: 0, found, near };
        suspects.take_bounds();
        suspects
    }

    /// Makes these addresses legal as well.
    pub(crate) fn allow(&mut self, first: u64, end: u64) {
        if !self.legal.contains(&(first, end)) {
            self.legal.push((first, end));
        }
    }

    fn take_bounds(&mut self) {
        self.lowest = self.table.lowest();
        self.lowest_half = (self.lowest >> 32) as u32;
    }

    /// A commit begins, of an object with these regions.
    pub(super) fn begin(&mut self, regions: &[RegionRecord]) {
        self.table = Elsewhere::now();
        self.take_bounds();
        self.found.clear();
        self.near.clear();
        self.data.clear();
        self.data.extend(regions.iter().map(|r| (r.base + r.meta_length, r.base + r.length)));
    }

    /// Looks at the lines of a page that changed. `page` is its address, `number` that in the file,
    /// `stored` what the file has.
    pub(super) fn look_at(
        &mut self,
        (page, number): (u64, u64),
        lines: u64,
        now: &Page,
        (stored, overlay): (&Page, &Overlay),
    ) {
        let many = lines.count_ones() > LINES_BEFORE_WHOLE_PAGE;
        if many && !may_lead(now, self.lowest_half) {
            return;
        }
        let mut rest = lines;
        while rest != 0 {
            let line = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let at = line * LINE_BYTES;
            if !may_lead(&now[at..at + LINE_BYTES], self.lowest_half) {
                continue;
            }
            let committed = match overlay.line(number, line) {
                Some(line) => &line[..],
                None => &stored[at..at + LINE_BYTES],
            };
            self.look_at_line(page + at as u64, &now[at..at + LINE_BYTES], committed);
        }
    }

    /// Looks at a page that no commit had yet.
    pub(super) fn look_at_fresh(&mut self, page: u64, now: &Page) {
        if !may_lead(now, self.lowest_half) {
            return;
        }
        for at in (0..PAGE_BYTES as usize).step_by(LINE_BYTES) {
            self.look_at_line(page + at as u64, &now[at..at + LINE_BYTES], &[0; LINE_BYTES]);
        }
    }

    fn look_at_line(&mut self, line: u64, now: &[u8], committed: &[u8]) {
        let (now, committed) = (now.as_chunks::<WORD_BYTES>().0, committed.as_chunks().0);
        for (index, (word, before)) in now.iter().zip(committed).enumerate() {
            let value = u64::from_le_bytes(*word);
            // One comparison for both bounds.
            let passes = value.wrapping_sub(self.lowest) < ADDRESS_END - self.lowest;
            if passes && word != before {
                self.look_up(line + (index * WORD_BYTES) as u64, value);
            }
        }
        const _: () = assert!(WORDS_OF_LINE * WORD_BYTES == LINE_BYTES);
    }

    fn look_up(&mut self, at: u64, word: u64) {
        let is_in = |ranges: &[(u64, u64)], address: u64| {
            ranges.iter().any(|(first, end)| address >= *first && address < *end)
        };
        if is_in(&self.legal, word) || !is_in(&self.data, at) {
            return;
        }
        match self.table.leads(word) {
            Leads::Into(place) if self.found.len() < SUSPECTS_MAX => {
                self.found.push(Suspect { at, word, into: place.name.clone() });
            }
            Leads::Near if self.near.len() < SUSPECTS_MAX => self.near.push((at, word)),
            Leads::Into(_) | Leads::Near | Leads::Nowhere => {}
        }
    }

    /// Gives what was found, by address.
    pub(super) fn take(&mut self) -> Vec<Suspect> {
        let near = std::mem::take(&mut self.near);
        if !near.is_empty()
            && let Some(newer) = self.table.renewed()
        {
            self.table = newer;
            for (at, word) in near {
                if let Leads::Into(place) = self.table.leads(word)
                    && self.found.len() < SUSPECTS_MAX
                {
                    self.found.push(Suspect { at, word, into: place.name.clone() });
                }
            }
        }
        self.found.sort_unstable_by_key(|suspect| suspect.at);
        std::mem::take(&mut self.found)
    }
}

/// Is there a word whose upper half can be that of an address? Costs less than a checksum: it
/// compiles to vector instructions.
fn may_lead(bytes: &[u8], lowest_half: u32) -> bool {
    // `half - lowest < END - lowest` for all halves at once, as a signed comparison, which all
    // processors have for vectors.
    const SIGN: u32 = 1 << 31;
    let shift = SIGN.wrapping_sub(lowest_half);
    let bound = ((ADDRESS_END >> 32) as u32 - lowest_half).wrapping_sub(SIGN) as i32;
    let words = bytes.as_chunks::<WORD_BYTES>().0;
    let leads = words.iter().fold(0u32, |leads, word| {
        let half = (u64::from_le_bytes(*word) >> 32) as u32;
        leads | u32::from((half.wrapping_add(shift) as i32) < bound)
    });
    leads != 0
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn the_first_look_lets_every_address_pass_and_nothing_else() {
        for lowest in [1u64 << 16, 0x2000_0000_0000, 0x5455_0000_0000] {
            let half = (lowest >> 32) as u32;
            for at in [0, 8, 2048, 4088] {
                for word in [lowest, lowest + 12345, 0x7fff_ffff_f000, ADDRESS_END - 1] {
                    assert!(may_lead(&page_of(word, at), half), "{word:#x}");
                }
                for word in [ADDRESS_END, 1 << 63, u64::MAX, u64::from_le_bytes(*b"some tex")] {
                    assert!(!may_lead(&page_of(word, at), half), "{word:#x}");
                }
            }
            if half > 0 {
                assert!(!may_lead(&page_of(lowest - (1 << 33), 0), half));
                assert!(!may_lead(&[0; PAGE_BYTES as usize], half));
            }
        }
    }

    #[test]
    fn only_words_that_changed_in_the_objects_data_are_found() {
        let local = 7u64;
        let word = &raw const local as u64;
        let (now, none) = (page_of(word, 128), Overlay::default());
        let zeros = [0; PAGE_BYTES as usize];
        let mut suspects = suspects();
        let mut look = |page: u64, lines: u64, stored: &Page| {
            suspects.begin(&[REGION]);
            suspects.look_at((page, 16), lines, &now, (stored, &none));
            suspects.take().iter().map(|s| (s.at, s.word)).collect::<Vec<_>>()
        };
        assert_eq!(look(PAGE, 1 << 2, &zeros), [(PAGE + 128, word)]);
        assert_eq!(look(PAGE, u64::MAX, &zeros), [(PAGE + 128, word)]);
        assert_eq!(look(PAGE, 1 << 3, &zeros), []);
        assert_eq!(look(PAGE, u64::MAX, &now), [], "it was there before");
        assert_eq!(look(REGION.base + 8192, u64::MAX, &zeros), [], "the library's own");
    }

    #[test]
    fn memory_that_is_mapped_while_a_commit_looks_is_found() {
        let mut suspects = suspects();
        // Larger than what malloc keeps, so it is mapped now.
        let new = vec![1u8; 96 << 20];
        let word = new.as_ptr() as u64 + 4096;
        suspects.look_at_fresh(PAGE, &page_of(word, 8));
        let found = suspects.take();
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].at, found[0].word), (PAGE + 8, word));
    }

    #[test]
    fn addresses_of_the_store_and_allowed_ones_are_legal() {
        let local = 7u64;
        let word = &raw const local as u64;
        let mut suspects = suspects();
        suspects.look_at_fresh(PAGE, &page_of(0x2000_0004_0000, 8));
        suspects.allow(word, word + 8);
        suspects.look_at_fresh(PAGE, &page_of(word, 8));
        assert_eq!(suspects.take(), []);
    }
}
