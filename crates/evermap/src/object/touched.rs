//! Compares the pages of a mapped commit with their checksums when they are first used.
//!
//! A program that reads a part of an object pays for that part only, and once: a bit for each page
//! records that it was compared. The bits belong to one mapping of one commit, whose pages do not
//! change.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::commit::checksums::{self, Tables};
use crate::commit::{BadPage, Overlay, judge_mapped};
use crate::format::{PAGE_BYTES, RegionRecord};

const PAGES_PER_WORD: u64 = 64;
/// Ranges up to this size use the checksum code for few pages.
const FEW_BYTES_MAX: u64 = 16 * PAGE_BYTES;

/// The pages of a mapping that were found correct.
#[derive(Debug, Default)]
pub(super) struct Touched {
    /// One bit for each page of the file. Allocated by the first comparison.
    right: OnceLock<Box<[AtomicU64]>>,
}

impl Touched {
    /// Compares the pages that hold `length` bytes from `address`, except those compared before.
    /// Returns false if one of them has no checksum, or lies outside the regions.
    ///
    /// # Safety
    /// The regions are mapped readable, with the overlay's lines over them (tables may lack
    /// theirs). No thread writes to them during the call. The regions are the same in every call.
    pub(super) unsafe fn verify(
        &self,
        regions: &[RegionRecord],
        overlay: &Overlay,
        address: u64,
        length: u64,
    ) -> Result<bool, BadPage> {
        if length == 0 {
            return Ok(true);
        }
        let Some(last) = address.checked_add(length - 1) else { return Ok(false) };
        let inside =
            |region: &&RegionRecord| address >= region.base && last - region.base < region.length;
        let Some(region) = regions.iter().find(inside) else { return Ok(false) };
        if region.checksums == 0 {
            return Ok(false);
        }
        // Opening a store compares a few small ranges.
        let entry =
            if length <= FEW_BYTES_MAX { checksums::entry_of_few } else { checksums::entry_of };
        let right = self.right.get_or_init(|| bits_for(regions));
        let number_of = |at: u64| (region.file_offset + (at - region.base)) / PAGE_BYTES;
        let mut tables = None;
        for number in number_of(address)..=number_of(last) {
            let Some(word) = right.get((number / PAGES_PER_WORD) as usize) else {
                return Ok(false);
            };
            let bit = 1 << (number % PAGES_PER_WORD);
            // Relaxed order suffices: the bit guards no other data, as the pages were mapped before
            // this value was shared.
            if word.load(Ordering::Relaxed) & bit != 0 {
                continue;
            }
            let tables = tables.get_or_insert_with(|| Tables::of(regions));
            // SAFETY: the page lies in the region; the rest is the caller's promise.
            let judged = unsafe { judge_mapped(region, tables, overlay, number, entry) }?;
            if !judged {
                return Ok(false);
            }
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Ok(true)
    }
}

fn bits_for(regions: &[RegionRecord]) -> Box<[AtomicU64]> {
    let end = regions.iter().map(|r| r.file_offset + r.length).max().unwrap_or(0);
    let words = end.div_ceil(PAGE_BYTES * PAGES_PER_WORD);
    (0..words).map(|_| AtomicU64::new(0)).collect()
}
