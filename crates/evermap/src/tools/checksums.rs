//! Page checksums, compared with the pages; and tables written anew for what the pages hold.

use crate::commit::checksums::{Tables, entry_of, seal, set_entry};
use crate::commit::{BadPage, verify_pages};
use crate::error::Result;
use crate::format::{CHECKSUMS_PER_PAGE, PAGE_BYTES, RegionRecord};

use super::image::Image;
use super::report::{Findings, Repair, Severity};

const PAGE: usize = PAGE_BYTES as usize;

/// Compares every page with its checksum. Gives the number of pages of regions that keep them;
/// `None` when the object keeps none. `progress` is told how many bytes are done.
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
    Ok(Some(kept.iter().map(|region| region.length / PAGE_BYTES).sum()))
}

fn report(bad: BadPage, findings: &mut Findings, accept: Option<&Repair>) {
    let (what, found, expected) = match bad {
        BadPage::Data { number, found, expected } => (
            format!("the page at byte {} of the file", number * PAGE_BYTES),
            format!("checksum {found:#010x}"),
            format!("checksum {expected:#010x}"),
        ),
        BadPage::Table { number } => (
            format!("the page of the checksum table at byte {} of the file", number * PAGE_BYTES),
            "a checksum that is not its own".to_string(),
            "a table that can be believed".to_string(),
        ),
    };
    match accept {
        Some(repair) => {
            let remedy = "restore it from a backup; or look at the data and use `--accept-data` if it is right";
            let answer = (remedy, Some(repair.clone()));
            findings.add(Severity::Damage, what, found, expected, answer);
        }
        None => findings.damage(what, found, expected),
    }
}

/// Calls `write` with every page of the object's tables as it should be for what the pages hold
/// now, and its place in the file.
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
        let mut buffer = vec![0; CHECKSUMS_PER_PAGE as usize * PAGE];
        for (index, from) in (0..pages).step_by(CHECKSUMS_PER_PAGE as usize).enumerate() {
            let count = (pages - from).min(CHECKSUMS_PER_PAGE);
            let bytes = &mut buffer[..count as usize * PAGE];
            image.read_pages((first + from) * PAGE_BYTES, bytes)?;
            let mut entries = [0; PAGE];
            for (number, page) in (first + from..).zip(bytes.as_chunks::<PAGE>().0) {
                if let Some(place) = tables.place(number) {
                    set_entry(&mut entries, place.index, entry_of(number, page));
                }
            }
            seal(&mut entries);
            write((table + index as u64) * PAGE_BYTES, &entries)?;
        }
    }
    Ok(())
}
