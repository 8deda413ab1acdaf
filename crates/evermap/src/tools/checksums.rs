//! Page checksums, compared with the pages.
//!
//! The layout is that of `docs/durability.md`: a table at the end of each region's metadata, 1023
//! entries a page and the table page's own checksum behind them. An entry is the page's CRC32C XOR
//! that of zeros, so that fresh zeros are right for a fresh page.

use crate::checksum::crc32c;
use crate::error::Result;
use crate::format::{
    CHECKSUMS_PER_PAGE, CHUNK_BYTES, PAGE_BYTES, ROOT_AREA_OFFSET, RegionRecord,
    meta_length_with_checksums,
};

use super::image::Image;
use super::report::{Findings, Repair, Severity};

const PAGE: usize = PAGE_BYTES as usize;
const ZEROS: [u8; PAGE] = [0; PAGE];
/// Pages compared at a time.
const PAGES_AT_A_TIME: u64 = 256;

/// A table of one region: where it lies and how many pages it is for.
pub(super) struct Table {
    /// Number of the region.
    region: usize,
    /// The region's first byte in the file.
    file_offset: u64,
    /// Pages of the region that the file holds.
    pages: u64,
    /// The table's own pages, counted from the region's first.
    own: std::ops::Range<u64>,
}

impl Table {
    /// The table of a region; `None` when it keeps none, an error text when it cannot be there.
    pub(super) fn of(number: usize, region: &RegionRecord) -> Result<Option<Table>, String> {
        if region.checksums == 0 {
            return Ok(None);
        }
        let chunks = (region.capacity - region.meta_length) / CHUNK_BYTES;
        let (meta, bytes) = meta_length_with_checksums(number == 0, chunks);
        let begins = region.meta_length.checked_sub(bytes);
        let place = begins.and_then(|begins| region.base.checked_add(begins));
        if meta > region.meta_length || place != Some(region.checksums) {
            return Err(format!("{:#x}", region.checksums));
        }
        let last = region.meta_length / PAGE_BYTES;
        Ok(Some(Table {
            region: number,
            file_offset: region.file_offset,
            pages: region.length / PAGE_BYTES,
            own: last - bytes / PAGE_BYTES..last,
        }))
    }

    fn page_offset(&self, page: u64) -> u64 {
        self.file_offset + page * PAGE_BYTES
    }

    /// The pages that a table page has the entries of.
    fn covered(&self, table_page: u64) -> std::ops::Range<u64> {
        let first = (table_page - self.own.start) * CHECKSUMS_PER_PAGE;
        first..(first + CHECKSUMS_PER_PAGE).min(self.pages)
    }

    /// The entry that a page should have; its own pages have none.
    fn entry(&self, page: u64, bytes: &[u8]) -> Option<u32> {
        if self.own.contains(&page) {
            return None;
        }
        let from = if self.region == 0 && page == 0 { ROOT_AREA_OFFSET } else { 0 };
        Some(crc32c(&[&bytes[from..]]) ^ crc32c(&[&ZEROS[from..]]))
    }

    /// What the table page should be, for what the pages hold now.
    pub(super) fn computed(&self, image: &Image, table_page: u64) -> Result<Vec<u8>> {
        let mut table = vec![0; PAGE];
        for_each_page(image, self, self.covered(table_page), |page, bytes| {
            let at = ((page - self.covered(table_page).start) * 4) as usize;
            let entry = self.entry(page, bytes).unwrap_or(0);
            table[at..at + 4].copy_from_slice(&entry.to_le_bytes());
        })?;
        let seal = seal_of(&table);
        table[PAGE - 4..].copy_from_slice(&seal.to_le_bytes());
        Ok(table)
    }

    /// The table's pages, with their places in the file.
    pub(super) fn table_pages(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.own
            .clone()
            .filter(|page| !self.covered(*page).is_empty())
            .map(|page| (page, self.page_offset(page)))
    }
}

/// The checksum that a table page carries in its last four bytes.
fn seal_of(table: &[u8]) -> u32 {
    crc32c(&[&table[..PAGE - 4]])
}

fn for_each_page(
    image: &Image,
    table: &Table,
    pages: std::ops::Range<u64>,
    mut each: impl FnMut(u64, &[u8]),
) -> Result<()> {
    let mut buffer = vec![0; (PAGES_AT_A_TIME * PAGE_BYTES) as usize];
    let mut from = pages.start;
    while from < pages.end {
        let count = (pages.end - from).min(PAGES_AT_A_TIME);
        let bytes = &mut buffer[..(count * PAGE_BYTES) as usize];
        image.read_pages(table.page_offset(from), bytes)?;
        for (page, bytes) in (from..).zip(bytes.chunks_exact(PAGE)) {
            each(page, bytes);
        }
        from += count;
    }
    Ok(())
}

/// Compares every page with its checksum. Gives the number of pages compared; `None` when the
/// object keeps no checksums.
pub(super) fn check(
    image: &Image,
    findings: &mut Findings,
    accept: Option<&Repair>,
    mut progress: impl FnMut(u64),
) -> Result<Option<u64>> {
    let mut compared = None;
    for (number, region) in image.regions() {
        match Table::of(number, region) {
            Ok(None) => {}
            Ok(Some(table)) => {
                let done = compared.get_or_insert(0);
                for (table_page, offset) in table.table_pages() {
                    *done += check_covered(image, &table, (table_page, offset), findings, accept)?;
                    progress(*done * PAGE_BYTES);
                }
            }
            Err(found) => findings.damage(
                format!("the checksum table's place in region {number}"),
                found,
                "the end of the region's metadata",
            ),
        }
    }
    Ok(compared)
}

fn check_covered(
    image: &Image,
    table: &Table,
    (table_page, offset): (u64, u64),
    findings: &mut Findings,
    accept: Option<&Repair>,
) -> Result<u64> {
    let mut entries = vec![0; PAGE];
    image.read_pages(offset, &mut entries)?;
    let stored = entry_at(&entries, CHECKSUMS_PER_PAGE);
    let seal = seal_of(&entries);
    // A page of the table that was never written is zeros, like the pages that it is for.
    if stored != seal && entries != ZEROS {
        let what = format!("the checksum table's page at {offset:#x}");
        damage(findings, accept, what, format!("{stored:#010x}"), format!("{seal:#010x}"));
        return Ok(0);
    }
    let covered = table.covered(table_page);
    let first = covered.start;
    let mut compared = 0;
    for_each_page(image, table, covered, |page, bytes| {
        let Some(computed) = table.entry(page, bytes) else { return };
        compared += 1;
        let stored = entry_at(&entries, page - first);
        if stored != computed {
            let what = format!("the page at {:#x} of the file", table.page_offset(page));
            let found = format!("checksum {computed:#010x}");
            damage(findings, accept, what, found, format!("{stored:#010x}"));
        }
    })?;
    Ok(compared)
}

/// Damage that somebody who knows the data may declare right.
fn damage(
    findings: &mut Findings,
    accept: Option<&Repair>,
    what: String,
    found: String,
    expected: String,
) {
    match accept {
        Some(repair) => {
            let remedy = "restore it from a backup, or declare the data right with `--accept-data`";
            let answer = (remedy, Some(repair.clone()));
            findings.add(Severity::Damage, what, found, expected, answer);
        }
        None => findings.damage(what, found, expected),
    }
}

fn entry_at(table: &[u8], index: u64) -> u32 {
    let at = index as usize * 4;
    u32::from_le_bytes(table[at..at + 4].try_into().unwrap_or_default())
}
