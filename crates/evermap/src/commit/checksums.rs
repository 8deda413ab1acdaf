//! Tables of page checksums: the position of a page's entry, and changes by a commit.
//!
//! A line of a table has 15 entries and its own checksum, so a damaged table is distinguished from
//! damaged data. Commits change tables as committed pages, never through the program's mapping. So
//! a page and its entry change together or not at all, and a failed commit has nothing to undo.
//! (The tables of a new object are filled in its mapping, see `mapped_tables`.) The entry of a page
//! of zeros is zero: memory that was never written needs no entry.

use super::record::Page;
use crate::format::{
    CHECKSUMS_PER_LINE, CHECKSUMS_PER_PAGE, LINE_BYTES, PAGE_BYTES, ROOT_AREA_OFFSET, RegionRecord,
    checksum_table_bytes,
};

/// CRC32C of 4096 zero bytes.
const ZERO_PAGE: u32 = 0x98f9_4189;
/// CRC32C of 60 zero bytes.
const ZERO_ENTRIES: u32 = 0x5a0b_0531;

/// Computes the entry of a page. For the superblock's page only the root area counts: the rest has
/// its own checksum, and its `log_required` changes outside of commits.
pub(crate) fn entry_of(number: u64, page: &Page) -> u32 {
    entry_by(number, page, crc32c::crc32c)
}

/// Like [`entry_of`], for few pages: uses the checksum code for small parts (see `checksum`), and
/// skips pages of zeros.
pub(crate) fn entry_of_few(number: u64, page: &Page) -> u32 {
    if page == &[0; PAGE_BYTES as usize] {
        return 0;
    }
    entry_by(number, page, |bytes| crate::checksum::crc32c(&[bytes]))
}

fn entry_by(number: u64, page: &Page, crc: impl Fn(&[u8]) -> u32) -> u32 {
    if number != 0 {
        return crc(page) ^ ZERO_PAGE;
    }
    let mut root_area = [0; PAGE_BYTES as usize];
    root_area[ROOT_AREA_OFFSET..].copy_from_slice(&page[ROOT_AREA_OFFSET..]);
    crc(&root_area) ^ ZERO_PAGE
}

/// A line of a table: entries and a checksum over them.
pub(crate) type TableLine = [u8; LINE_BYTES];

const SEAL_AT: usize = CHECKSUMS_PER_LINE as usize;

/// Reads an entry of a line.
pub(crate) fn entry_at(line: &TableLine, index: usize) -> u32 {
    let bytes = &line[index * 4..index * 4 + 4];
    u32::from_le_bytes(bytes.try_into().unwrap_or_default())
}

/// Sets an entry; [`seal`] follows when all are set.
pub(crate) fn set_entry(line: &mut TableLine, index: usize, entry: u32) {
    line[index * 4..index * 4 + 4].copy_from_slice(&entry.to_le_bytes());
}

/// Computes a line's own checksum. The checksum of a line of zeros is zero.
fn seal_of(line: &TableLine) -> u32 {
    if line == &[0; LINE_BYTES] {
        return 0;
    }
    crate::checksum::crc32c(&[&line[..SEAL_AT * 4]]) ^ ZERO_ENTRIES
}

/// Writes a line's own checksum.
pub(crate) fn seal(line: &mut TableLine) {
    let seal = seal_of(line);
    set_entry(line, SEAL_AT, seal);
}

/// Returns true if a line's own checksum is correct.
pub(crate) fn is_sealed(line: &TableLine) -> bool {
    seal_of(line) == entry_at(line, SEAL_AT)
}

/// One region's table, by page numbers in the object file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    /// First page of the region.
    first: u64,
    /// Pages of the region's capacity.
    pages: u64,
    /// First page of the table.
    table: u64,
    table_pages: u64,
}

/// The tables of all regions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tables(Vec<Table>);

/// Position of a page's entry: page number of the table page, line in it, index in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EntryPlace {
    pub(crate) table_page: u64,
    pub(crate) line: usize,
    pub(crate) index: usize,
}

impl EntryPlace {
    /// Number of pages from this one on whose entries are in the same table page, unless the
    /// region, or the run of pages before its table, ends first.
    pub(crate) fn left_in_page(&self) -> u64 {
        CHECKSUMS_PER_PAGE - (self.line as u64 * CHECKSUMS_PER_LINE + self.index as u64)
    }
}

impl Tables {
    /// Returns the tables of checked regions.
    pub(crate) fn of(regions: &[RegionRecord]) -> Tables {
        let kept = regions.iter().filter(|r| r.checksums != 0);
        Tables(
            kept.map(|r| {
                let pages = r.capacity / PAGE_BYTES;
                Table {
                    first: r.file_offset / PAGE_BYTES,
                    pages,
                    table: (r.file_offset + (r.checksums - r.base)) / PAGE_BYTES,
                    table_pages: checksum_table_bytes(pages) / PAGE_BYTES,
                }
            })
            .collect(),
        )
    }

    fn table_of(&self, page: u64) -> Option<&Table> {
        self.0.iter().find(|t| page >= t.first && page - t.first < t.pages)
    }

    /// Returns the position of a page's entry; `None` for pages of tables and of regions without
    /// one.
    pub(crate) fn place(&self, page: u64) -> Option<EntryPlace> {
        let table = self.table_of(page)?;
        if (table.table..table.table + table.table_pages).contains(&page) {
            return None;
        }
        let number = page - table.first;
        let in_page = number % CHECKSUMS_PER_PAGE;
        Some(EntryPlace {
            table_page: table.table + number / CHECKSUMS_PER_PAGE,
            line: (in_page / CHECKSUMS_PER_LINE) as usize,
            index: (in_page % CHECKSUMS_PER_LINE) as usize,
        })
    }

    /// Returns true for a page of a table.
    pub(crate) fn is_table_page(&self, page: u64) -> bool {
        self.table_of(page).is_some_and(|t| (t.table..t.table + t.table_pages).contains(&page))
    }

    /// Returns true if no region has checksums.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{CHUNK_BYTES, meta_length_with_checksums};

    #[test]
    fn pages_of_zeros_need_no_entry_and_an_empty_table_is_sealed() {
        let zero = [0; PAGE_BYTES as usize];
        assert_eq!(entry_of(5, &zero), 0);
        assert_eq!(entry_of(0, &zero), 0);
        assert!(is_sealed(&[0; LINE_BYTES]));
        let mut one = zero;
        one[17] = 1;
        assert_ne!(entry_of(5, &one), 0);
        assert_eq!(entry_of(5, &one), entry_of_few(5, &one));
        assert_eq!(entry_of_few(5, &zero), 0);
        assert_eq!(entry_of(0, &one), 0, "the superblock has its own checksum");
        let mut line = [0; LINE_BYTES];
        set_entry(&mut line, 3, 77);
        assert!(!is_sealed(&line));
        seal(&mut line);
        assert!(is_sealed(&line));
        assert_eq!(entry_at(&line, 3), 77);
    }

    #[test]
    fn every_page_but_the_tables_own_has_one_place() {
        let (meta, table) = meta_length_with_checksums(true, 2000);
        let region = RegionRecord {
            base: 0x1000_0000 - meta,
            capacity: meta + 2000 * CHUNK_BYTES,
            length: meta + 2000 * CHUNK_BYTES,
            file_offset: 0,
            meta_length: meta,
            checksums: 0x1000_0000 - table,
        };
        let tables = Tables::of(&[region]);
        let mut places = std::collections::HashSet::new();
        let mut own = 0;
        for page in 0..region.capacity / PAGE_BYTES {
            match tables.place(page) {
                Some(place) => {
                    assert!(places.insert((place.table_page, place.line, place.index)));
                    assert!(tables.is_table_page(place.table_page));
                    assert!(place.index < SEAL_AT && place.line < 64);
                }
                None => own += 1,
            }
        }
        assert_eq!(own, table / PAGE_BYTES);
        assert!(tables.place(region.capacity / PAGE_BYTES).is_none());
    }
}
