//! Compares page checksums with the pages, and recomputes checksum tables.
//!
//! A check covers all lines of the tables, including lines for pages that the file does not have
//! yet. `recompute` trusts the pages; only a rebase, an import and `--accept-data` use it.

use crate::commit::checksums::{Tables, entry_of, is_sealed, seal, set_entry};
use crate::commit::{BadPage, verify_pages};
use crate::error::Result;
use crate::format::{
    CHECKSUMS_PER_LINE, CHECKSUMS_PER_PAGE, LINE_BYTES, PAGE_BYTES, PAGE_LINES, RegionRecord,
    checksum_table_bytes,
};

use super::image::Image;
use super::report::{Findings, Repair, Severity};

const PAGE: usize = PAGE_BYTES as usize;

/// Compares every page with its checksum. Returns the number of pages in regions with checksums, or
/// `None` if the object has none. Calls `progress` with the number of bytes done.
pub(super) fn check(
    image: &Image,
    findings: &mut Findings,
    accept: Option<&Repair>,
    mut progress: impl FnMut(u64),
) -> Result<Option<u64>> {
    let regions = image.superblock().regions();
    let kept: Vec<&RegionRecord> = regions.iter().filter(|r| r.checksums != 0).collect();
    if kept.is_empty() {
        return Ok(None);
    }
    let mut done = 0;
    verify_pages(
        image.file(),
        regions,
        image.overlay(),
        |bad| {
            report(bad, findings, accept);
            true
        },
        |bytes| {
            done += bytes;
            progress(done);
            true
        },
    )?;
    for region in &kept {
        check_spare_lines(image, region, |bad| report(bad, findings, accept))?;
    }
    Ok(Some(kept.iter().map(|region| region.length / PAGE_BYTES).sum()))
}

/// Checks the lines of a table whose pages the file does not have yet. Damage in them would look
/// like damage in the pages once the file has grown.
fn check_spare_lines(
    image: &Image,
    region: &RegionRecord,
    mut each_bad: impl FnMut(BadPage),
) -> Result<()> {
    let table_bytes = checksum_table_bytes(region.capacity / PAGE_BYTES);
    let table = region.file_offset + (region.checksums - region.base);
    let used = (region.length / PAGE_BYTES).div_ceil(CHECKSUMS_PER_LINE) as usize;
    let mut page = [0; PAGE];
    for offset in (0..table_bytes).step_by(PAGE) {
        image.read_pages(table + offset, &mut page)?;
        let first = (offset / PAGE_BYTES) as usize * PAGE_LINES;
        for (line, bytes) in page.as_chunks::<LINE_BYTES>().0.iter().enumerate() {
            if first + line >= used && !is_sealed(bytes) {
                each_bad(BadPage::Table { number: (table + offset) / PAGE_BYTES, line });
            }
        }
    }
    Ok(())
}

fn report(bad: BadPage, findings: &mut Findings, accept: Option<&Repair>) {
    let (what, found, expected) = match bad {
        BadPage::Data { number, found, expected } => (
            format!("the page at byte {} of the file", number * PAGE_BYTES),
            format!("checksum {found:#010x}"),
            format!("checksum {expected:#010x}"),
        ),
        BadPage::Table { number, line } => (
            format!(
                "the checksum table's line at byte {} of the file",
                number * PAGE_BYTES + (line * LINE_BYTES) as u64
            ),
            "a wrong checksum of the line".to_string(),
            "a sound table".to_string(),
        ),
    };
    match accept {
        Some(repair) => {
            let remedy = "restore it from a backup; or inspect the data, and use `--accept-data` if \
                          they are right";
            let answer = (remedy, Some(repair.clone()));
            findings.add(Severity::Damage, what, found, expected, answer);
        }
        None => findings.damage(what, found, expected),
    }
}

/// Computes all checksum tables from the object's pages. Calls `write` with the file offset and the
/// contents of each page of the tables.
pub(super) fn recompute(
    image: &Image,
    mut write: impl FnMut(u64, &[u8; PAGE]) -> Result<()>,
) -> Result<()> {
    let regions = image.superblock().regions();
    let tables = Tables::of(regions);
    for region in regions.iter().filter(|r| r.checksums != 0) {
        let first = region.file_offset / PAGE_BYTES;
        let pages = region.length / PAGE_BYTES;
        let table = first + (region.checksums - region.base) / PAGE_BYTES;
        let capacity = region.capacity / PAGE_BYTES;
        let mut buffer = vec![0; CHECKSUMS_PER_PAGE as usize * PAGE];
        for (index, from) in (0..capacity).step_by(CHECKSUMS_PER_PAGE as usize).enumerate() {
            let count = pages.saturating_sub(from).min(CHECKSUMS_PER_PAGE);
            let bytes = &mut buffer[..count as usize * PAGE];
            image.read_pages((first + from) * PAGE_BYTES, bytes)?;
            let mut entries = [0; PAGE];
            for (number, page) in (first + from..).zip(bytes.as_chunks::<PAGE>().0) {
                if let Some(place) = tables.place(number) {
                    let lines = entries.as_chunks_mut::<LINE_BYTES>().0;
                    set_entry(&mut lines[place.line], place.index, entry_of(number, page));
                }
            }
            entries.as_chunks_mut::<LINE_BYTES>().0.iter_mut().for_each(seal);
            write((table + index as u64) * PAGE_BYTES, &entries)?;
        }
    }
    Ok(())
}
