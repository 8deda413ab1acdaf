//! Checksum tables and pages of an object as they are mapped: fills the tables of a new object, and
//! compares mapped pages with their checksums.

use super::checksums::{self, EntryPlace, TableLine, Tables};
use super::committed::data_ranges;
use super::overlay::Overlay;
use super::pages::page_at;
use super::record::Page;
use super::verify::BadPage;
use crate::error::Result;
use crate::format::{CHECKSUM_UNKNOWN, LINE_BYTES, PAGE_BYTES, RegionRecord};
use crate::storage::File;

/// Fills the checksum tables of a new object, in its mapping.
///
/// # Safety
/// The regions are mapped writable at their addresses, and no other code accesses them.
pub(crate) unsafe fn write_tables(object: &dyn File, regions: &[RegionRecord]) -> Result<()> {
    let tables = Tables::of(regions);
    for region in regions.iter().filter(|r| r.checksums != 0) {
        let end = region.file_offset + region.length;
        let mut touched = Vec::new();
        for (start, stop) in data_ranges(object, region.file_offset, end)? {
            for offset in (start..stop).step_by(PAGE_BYTES as usize) {
                let number = offset / PAGE_BYTES;
                let Some(place) = tables.place(number) else { continue };
                // SAFETY: inside the region, mapped as the caller promises.
                let page = unsafe { page_at(region.base + (offset - region.file_offset)) };
                let entry = checksums::entry_of(number, page);
                let line = line_address(region, place);
                // SAFETY: tables are a part of the region's metadata, and the line is not
                // referenced elsewhere.
                checksums::set_entry(unsafe { &mut *line }, place.index, entry);
                if touched.last() != Some(&line) {
                    touched.push(line);
                }
            }
        }
        for line in touched {
            // SAFETY: as above.
            checksums::seal(unsafe { &mut *line });
        }
    }
    Ok(())
}

/// Returns the first bad page of a small mapped object with the overlay's lines over its pages.
/// Makes no system call and no copy: some 20 us for a catalog of a few objects.
///
/// # Safety
/// The regions are mapped readable, with the overlay's lines over them (tables may lack theirs),
/// and no thread writes to them during the call.
pub(crate) unsafe fn first_bad_mapped(
    regions: &[RegionRecord],
    overlay: &Overlay,
) -> Option<BadPage> {
    let tables = Tables::of(regions);
    for region in regions.iter().filter(|r| r.checksums != 0) {
        let first = region.file_offset / PAGE_BYTES;
        for number in first..first + region.length / PAGE_BYTES {
            // SAFETY: the page lies in the region, mapped as the caller promises.
            let judged =
                unsafe { judge_mapped(region, &tables, overlay, number, checksums::entry_of_few) };
            if let Err(bad) = judged {
                return Some(bad);
            }
        }
    }
    None
}

/// Compares a mapped page with its checksum. Returns false if it has none: a page of a table, of a
/// region without a table, or of a hole.
///
/// # Safety
/// As for [`first_bad_mapped`]; the page `number` of the file lies in the region.
pub(crate) unsafe fn judge_mapped(
    region: &RegionRecord,
    tables: &Tables,
    overlay: &Overlay,
    number: u64,
    entry_of: impl Fn(u64, &Page) -> u32,
) -> std::result::Result<bool, BadPage> {
    let Some(place) = tables.place(number) else { return Ok(false) };
    // SAFETY: a table is a part of the region's metadata, mapped as the caller promises.
    let mapped = unsafe { &*line_address(region, place) };
    let line = overlay.line(place.table_page, place.line).unwrap_or(mapped);
    if !checksums::is_sealed(line) {
        return Err(BadPage::Table { number: place.table_page, line: place.line });
    }
    let expected = checksums::entry_at(line, place.index);
    if expected == CHECKSUM_UNKNOWN {
        return Ok(false);
    }
    let at = number * PAGE_BYTES - region.file_offset;
    // SAFETY: inside the region, mapped as the caller promises.
    let found = entry_of(number, unsafe { page_at(region.base + at) });
    match found == expected {
        true => Ok(true),
        false => Err(BadPage::Data { number, found, expected }),
    }
}

/// Returns the address of a line of a region's table.
fn line_address(region: &RegionRecord, place: EntryPlace) -> *mut TableLine {
    let page = region.base + (place.table_page * PAGE_BYTES - region.file_offset);
    (page + (place.line * LINE_BYTES) as u64) as *mut TableLine
}
