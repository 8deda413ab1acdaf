//! Page table queries: which pages of a range are present, and of which kind.
//!
//! Uses `PAGEMAP_SCAN` (Linux 6.7), which reports ranges of equal pages, including huge ones. Older
//! kernels use `/proc/self/pagemap`, one word per page, without huge pages.

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
/// Maximum number of ranges per call.
const RANGES: usize = 256;
/// Maximum number of words per read of the pagemap.
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

/// Range of equal pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pages {
    pub(crate) address: usize,
    pub(crate) bytes: usize,
    /// True for pages of a file's cache, false for private pages.
    pub(crate) is_file: bool,
    /// True for pages in memory, false for swapped pages.
    pub(crate) is_present: bool,
    /// True for a huge page. Always false with the pagemap.
    pub(crate) is_huge: bool,
}

/// Returns the pages of a range that are present or swapped, ascending. Leaves out the shared zero
/// page, except before Linux 6.7. Returns `None` if the kernel does not report them.
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

/// Returns the bytes of pages written since a userfaultfd write-protected them, or `None` if the
/// kernel does not report it.
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

/// Calls `report` for ranges of pages in one of the categories `any`, ascending, with their
/// categories out of `returned`.
fn scan(
    file: &File,
    address: usize,
    bytes: usize,
    any: u64,
    returned: u64,
    mut report: impl FnMut(&PageRegion),
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
        // SAFETY: the ioctl number belongs to the structure; the kernel fills up to `RANGES`
        // regions, which live through the call.
        let count = unsafe { ioctl(file, count) }.ok()?;
        regions[..count.min(RANGES)].iter().for_each(&mut report);
        if scan.walk_end <= at {
            return None;
        }
        at = scan.walk_end;
    }
    Some(())
}

/// The ioctl, which returns the number of regions filled.
struct Count<'s> {
    scan: &'s mut Scan,
}

// SAFETY: the opcode belongs to the structure, which is passed by address and lives through the
// call.
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
    fn both_queries_find_only_touched_pages() {
        let region = Region::private(1 << 20).unwrap();
        let page_bytes = page_bytes();
        for page in [3, 4, 9] {
            // SAFETY: the address is within the region, which has no other user.
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
