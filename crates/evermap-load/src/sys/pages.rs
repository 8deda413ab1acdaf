//! What is in the page tables: which pages of a range are there, and of which kind.
//!
//! By `PAGEMAP_SCAN` (Linux 6.7), which names ranges of equal pages, huge ones too; before, from `/proc/self/pagemap`, a word a page,
//! which does not tell huge pages.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::ioctl::{Opcode, ioctl, opcode};

use super::page_bytes;

const IS_WRITTEN: u64 = 1 << 1;
const IS_FILE: u64 = 1 << 2;
const IS_PRESENT: u64 = 1 << 3;
const IS_SWAPPED: u64 = 1 << 4;
const IS_ZERO: u64 = 1 << 5;
const IS_HUGE: u64 = 1 << 6;
/// Ranges that one call tells of.
const RANGES: usize = 256;
/// Words that one read of the pagemap brings.
const WORDS: usize = 8192;

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// `struct pm_scan_arg`.
#[repr(C)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_count: u64,
    pages_max: u64,
    category_inverted: u64,
    category_mask: u64,
    category_any_mask: u64,
    return_mask: u64,
}

const PAGEMAP_SCAN: Opcode = opcode::read_write::<Scan>(b'f', 16);
const _: () = assert!(size_of::<Scan>() == 96 && size_of::<PageRegion>() == 24);

/// Equal pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pages {
    pub(crate) address: usize,
    pub(crate) bytes: usize,
    /// Of a file's cache; else private.
    pub(crate) is_file: bool,
    /// In memory; else swapped.
    pub(crate) is_present: bool,
    /// Mapped as a huge page; not known from the pagemap.
    pub(crate) is_huge: bool,
}

/// The pages of a range that are there, ascending. The page of zeros that untouched memory shows is none. `None` where the kernel does not
/// tell.
pub(crate) fn pages(address: usize, bytes: usize) -> Option<Vec<Pages>> {
    let file = File::open("/proc/self/pagemap").ok()?;
    scanned(&file, address, bytes).or_else(|| read(&file, address, bytes))
}

fn scanned(file: &File, address: usize, bytes: usize) -> Option<Vec<Pages>> {
    let mut found = Vec::new();
    let returned = IS_FILE | IS_PRESENT | IS_SWAPPED | IS_ZERO | IS_HUGE;
    scan(file, address, bytes, IS_PRESENT | IS_SWAPPED, returned, |region| {
        let is = |category| region.categories & category != 0;
        if !is(IS_ZERO) {
            found.push(Pages {
                address: region.start as usize,
                bytes: (region.end - region.start) as usize,
                is_file: is(IS_FILE),
                is_present: is(IS_PRESENT),
                is_huge: is(IS_HUGE),
            });
        }
    })?;
    Some(found)
}

/// Bytes of pages that were written since they were write-protected by a userfaultfd. `None` where the kernel does not tell.
pub(crate) fn written_bytes(address: usize, bytes: usize) -> Option<u64> {
    let file = File::open("/proc/self/pagemap").ok()?;
    let mut written_bytes = 0;
    scan(&file, address, bytes, IS_PRESENT | IS_SWAPPED, IS_WRITTEN, |region| {
        if region.categories & IS_WRITTEN != 0 {
            written_bytes += region.end - region.start;
        }
    })?;
    Some(written_bytes)
}

/// Tells of ranges of pages that have one of the categories `any`, ascending, with those of `returned` that they have.
fn scan(
    file: &File,
    address: usize,
    bytes: usize,
    any: u64,
    returned: u64,
    mut tell: impl FnMut(&PageRegion),
) -> Option<()> {
    let (mut at, end) = (address as u64, (address + bytes) as u64);
    while at < end {
        let mut regions = [PageRegion::default(); RANGES];
        let mut scan = Scan {
            size: size_of::<Scan>() as u64,
            flags: 0,
            start: at,
            end,
            walk_end: 0,
            regions: regions.as_mut_ptr() as u64,
            regions_count: RANGES as u64,
            pages_max: 0,
            category_inverted: 0,
            category_mask: 0,
            category_any_mask: any,
            return_mask: returned,
        };
        let count = Count { scan: &mut scan };
        // SAFETY: number and structure belong together; the kernel fills up to `RANGES` regions, which live through the call.
        let count = unsafe { ioctl(file, count) }.ok()?;
        regions[..count.min(RANGES)].iter().for_each(&mut tell);
        if scan.walk_end <= at {
            return None;
        }
        at = scan.walk_end;
    }
    Some(())
}

/// The call, which returns how many regions it filled.
struct Count<'s> {
    scan: &'s mut Scan,
}

// SAFETY: the opcode goes with the structure, which is passed by address and lives through the call.
unsafe impl rustix::ioctl::Ioctl for Count<'_> {
    type Output = usize;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        PAGEMAP_SCAN
    }

    fn as_ptr(&mut self) -> *mut std::ffi::c_void {
        std::ptr::from_mut(self.scan).cast()
    }

    unsafe fn output_from_ptr(
        out: rustix::ioctl::IoctlOutput,
        _extract: *mut std::ffi::c_void,
    ) -> rustix::io::Result<usize> {
        Ok(usize::try_from(out).unwrap_or(0))
    }
}

fn read(file: &File, address: usize, bytes: usize) -> Option<Vec<Pages>> {
    let page_bytes = page_bytes();
    let mut found: Vec<Pages> = Vec::new();
    let (first, end) = (address / page_bytes, (address + bytes).div_ceil(page_bytes));
    let mut words = vec![0u8; WORDS * 8];
    let mut page = first;
    while page < end {
        let wanted = (end - page).min(WORDS) * 8;
        file.read_exact_at(&mut words[..wanted], page as u64 * 8).ok()?;
        for word in words[..wanted].chunks_exact(8) {
            let word = word.try_into().map_or(0, u64::from_ne_bytes);
            let is = |bit: u32| word >> bit & 1 == 1;
            if is(63) || is(62) {
                let at = page * page_bytes;
                let now = Pages {
                    address: at,
                    bytes: page_bytes,
                    is_file: is(61),
                    is_present: is(63),
                    is_huge: false,
                };
                match found.last_mut() {
                    Some(last)
                        if last.address + last.bytes == at
                            && (last.is_file, last.is_present) == (now.is_file, now.is_present) =>
                    {
                        last.bytes += page_bytes;
                    }
                    _ => found.push(now),
                }
            }
            page += 1;
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::region::Region;

    #[test]
    fn touched_pages_are_found_both_ways_and_untouched_ones_are_not() {
        let region = Region::private(1 << 20).unwrap();
        let page_bytes = page_bytes();
        for page in [3, 4, 9] {
            // SAFETY: within the region, which nobody else uses.
            unsafe { region.address().add(page * page_bytes).write(1) };
        }
        let file = File::open("/proc/self/pagemap").unwrap();
        let base = region.address() as usize;
        let expected =
            [(3, 2), (9, 1)].map(|(at, pages)| (base + at * page_bytes, pages * page_bytes));
        let places = |pages: Vec<Pages>| {
            pages.iter().map(|pages| (pages.address, pages.bytes)).collect::<Vec<_>>()
        };
        assert_eq!(places(read(&file, base, 1 << 20).unwrap()), expected);
        if let Some(pages) = scanned(&file, base, 1 << 20) {
            assert_eq!(places(pages), expected);
        }
    }
}
