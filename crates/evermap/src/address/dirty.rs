//! Finds the pages of a private mapping that this process has changed.
//!
//! Three methods, best first: the `PAGEMAP_SCAN` ioctl (Linux 6.7, no privilege), reading
//! `/proc/self/pagemap`, and neither (every page is a candidate, and the comparison that follows
//! finds the changed ones). All return a superset of the changed pages, including pages that were
//! swapped out or written by system calls.
//!
//! Once the kernel watches stores, a scan of pages that did not change costs 2 ns each, whether the
//! program has read them or not. "Changed pages" in `docs/design.md` explains the two questions
//! that such a scan asks.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

use crate::format::PAGE_BYTES;

use super::watch::WriteWatch;

/// Method for finding changed pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirtyScan {
    /// The `PAGEMAP_SCAN` ioctl.
    PagemapScan,
    /// `/proc/self/pagemap`, eight bytes per page.
    Pagemap,
    /// Like `Pagemap`, for files whose pages are storage themselves (DAX). Before Linux 6.15,
    /// neither method above recognises their clean pages as file pages. A private page is mapped
    /// exclusively by this process.
    PagemapExclusive,
    /// Every page is a candidate.
    Everything,
}

/// Finds changed pages with the best method that this kernel offers.
#[derive(Debug)]
pub(crate) struct PageScanner {
    pagemap: Option<File>,
    method: DirtyScan,
    watch: Option<WriteWatch>,
    /// Result buffer of the ioctl: up to 96 KiB that would otherwise be allocated for every scan.
    found: Mutex<Vec<PageRegion>>,
}

/// Pages that one walk of the page tables finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    /// Private pages. The kernel looks at the `struct page` of every present page.
    Private,
    /// Pages that are not write-protected, private or not. The walk protects them, so no store in
    /// between is missed. Needs the page tables only.
    Unprotected,
}

/// `struct pm_scan_arg` of `linux/fs.h`.
#[repr(C)]
struct PmScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}
const _: () = assert!(size_of::<PmScanArg>() == 96);

/// `struct page_region` of `linux/fs.h`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::c_ulong = 3 << 30 | 96 << 16 | 0x66 << 8 | 16;
const PAGE_IS_WRITTEN: u64 = 1 << 1;
const PAGE_IS_FILE: u64 = 1 << 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;
const PM_SCAN_WP_MATCHING: u64 = 1 << 0;
const PM_SCAN_CHECK_WPASYNC: u64 = 1 << 1;
/// Initial and maximum number of ranges per ioctl. Many sessions change only a few pages, and
/// touching 96 KiB for them takes 24 page faults.
const REGIONS_PER_CALL: (usize, usize) = (64, 4096);
/// Unprotected runs of at least this many bytes are searched for private pages; each search is a
/// call of 1.5 us. The pages of shorter runs are all taken: most were stored to, and comparing one
/// that was only read costs no more than a call.
const SEARCHED_BYTES_MIN: u64 = 16 * PAGE_BYTES;
/// One call searches runs that are at most this far apart, which costs no more than two calls.
const SEARCHED_GAP_BYTES_MAX: u64 = 64 * PAGE_BYTES;

impl PageScanner {
    /// Probes the kernel once: opens the page map and tries the ioctl. `direct` is the mapped
    /// file's [`is_direct`](crate::storage::File::is_direct).
    pub(crate) fn new(direct: bool) -> PageScanner {
        let pagemap = File::open("/proc/self/pagemap").ok();
        let mut scanner = PageScanner {
            pagemap,
            method: DirtyScan::PagemapScan,
            watch: None,
            found: Mutex::default(),
        };
        let page = PAGE_BYTES;
        if scanner.pagemap.is_none() {
            scanner.method = DirtyScan::Everything;
        } else if direct {
            scanner.method = DirtyScan::PagemapExclusive;
        } else if scanner
            .scan_ioctl(page, page + PAGE_BYTES, Question::Private, &mut Vec::new())
            .is_err()
        {
            scanner.method = DirtyScan::Pagemap;
        }
        scanner
    }

    /// Creates a scanner that uses only the given method, for tests.
    #[cfg(test)]
    pub(crate) fn with_method(method: DirtyScan) -> PageScanner {
        PageScanner { method, watch: None, ..PageScanner::new(false) }
    }

    /// Makes later scans of these ranges find only pages stored to since the previous scan, and a
    /// few that were only read. The ranges are private mappings of files. Each scan write-protects
    /// the present pages; a store to such a page costs a fault of 1 us, which the kernel handles by
    /// itself. Returns false if the kernel does not support this; scans then find all private pages
    /// as before.
    pub(crate) fn watch(&mut self, ranges: &[(u64, u64)]) -> bool {
        if self.method != DirtyScan::PagemapScan {
            return false;
        }
        if self.watch.is_none() {
            self.watch = WriteWatch::new();
        }
        let watched = match &self.watch {
            Some(watch) => ranges.iter().all(|&(start, end)| watch.add(start, end)),
            None => false,
        };
        if !watched {
            self.watch = None;
        }
        watched
    }

    /// Returns true if scans distinguish private pages from others.
    pub(crate) fn tells(&self) -> bool {
        self.method != DirtyScan::Everything
    }

    /// Returns true if scans find only pages stored to since the previous scan.
    pub(crate) fn is_watching(&self) -> bool {
        self.watch.is_some()
    }

    /// Appends the runs of pages in `start..end` that may differ from the file, as start and end
    /// addresses: ascending, disjoint, not adjacent.
    ///
    /// With the ioctl, ranges without page tables cost almost nothing, and a run costs 100 ns. A
    /// present page costs 25 ns, or 2 ns once a watching scan has protected it. Reading the page
    /// map costs 1.2 ms per GiB of addresses.
    pub(crate) fn scan(&self, start: u64, end: u64, runs: &mut Vec<(u64, u64)>) {
        if !self.is_watching() {
            return self.scan_private(start, end, runs);
        }
        let first = runs.len();
        if self.scan_stores(start, end, runs).is_err() {
            take_all(start, end, first, runs);
        }
    }

    /// Like [`scan`](PageScanner::scan), but finds all private pages, and changes nothing.
    pub(crate) fn scan_private(&self, start: u64, end: u64, runs: &mut Vec<(u64, u64)>) {
        let first = runs.len();
        let result = match self.method {
            DirtyScan::PagemapScan => self.scan_ioctl(start, end, Question::Private, runs),
            DirtyScan::Pagemap | DirtyScan::PagemapExclusive => self.scan_pagemap(start, end, runs),
            DirtyScan::Everything => Err(io::ErrorKind::Unsupported.into()),
        };
        if result.is_err() {
            take_all(start, end, first, runs);
        }
    }

    /// Returns true if the page at this address is private, or may be.
    pub(crate) fn is_private(&self, address: u64) -> bool {
        let mut runs = Vec::new();
        self.scan_private(address, address + PAGE_BYTES, &mut runs);
        !runs.is_empty()
    }

    /// Finds pages stored to since the last scan of the range.
    ///
    /// The order matters: other threads may store between the two walks. A page that the first walk
    /// protects and that is stored to before the second is unprotected again, so the next scan
    /// finds it, whether the second walk does or not.
    fn scan_stores(&self, start: u64, end: u64, runs: &mut Vec<(u64, u64)>) -> io::Result<()> {
        let mut unprotected = Vec::new();
        self.scan_ioctl(start, end, Question::Unprotected, &mut unprotected)?;
        let is_searched = |run: &(u64, u64)| run.1 - run.0 >= SEARCHED_BYTES_MIN;
        let (mut searches, mut private) = (Vec::<(u64, u64)>::new(), Vec::new());
        for (start, end) in unprotected.iter().copied().filter(is_searched) {
            match searches.last_mut() {
                Some(last) if start - last.1 <= SEARCHED_GAP_BYTES_MAX => last.1 = end,
                _ => searches.push((start, end)),
            }
        }
        for (start, end) in searches {
            self.scan_ioctl(start, end, Question::Private, &mut private)?;
        }
        let mut private = private.into_iter().peekable();
        for run in unprotected {
            if !is_searched(&run) {
                push_run(runs, run.0, run.1);
                continue;
            }
            while private.next_if(|(_, end)| *end <= run.0).is_some() {}
            while let Some((start, end)) = private.peek().copied().filter(|p| p.0 < run.1) {
                push_run(runs, start.max(run.0), end.min(run.1));
                if end > run.1 {
                    // The rest may be in the next run.
                    break;
                }
                private.next();
            }
        }
        Ok(())
    }

    fn scan_ioctl(
        &self,
        start: u64,
        end: u64,
        question: Question,
        runs: &mut Vec<(u64, u64)>,
    ) -> io::Result<()> {
        let Some(pagemap) = &self.pagemap else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let (few, most) = REGIONS_PER_CALL;
        if found.is_empty() {
            found.resize(few, PageRegion::default());
        }
        // A private page is a page that is not the file's. An inverted category filters only if the
        // mask contains it as well. If the file is named anywhere, in `return_mask` too, the kernel
        // looks at the `struct page` of every present page.
        let (flags, inverted, mask) = match question {
            Question::Private => (0, PAGE_IS_FILE, PAGE_IS_FILE),
            Question::Unprotected => {
                (PM_SCAN_WP_MATCHING | PM_SCAN_CHECK_WPASYNC, 0, PAGE_IS_WRITTEN)
            }
        };
        let mut at = start;
        while at < end {
            let mut argument = PmScanArg {
                size: size_of::<PmScanArg>() as u64,
                flags,
                start: at,
                end,
                walk_end: 0,
                vec: found.as_mut_ptr() as u64,
                vec_len: found.len() as u64,
                max_pages: 0,
                category_inverted: inverted,
                category_mask: mask,
                // Without this, some kernels take every page that was never touched for written,
                // and protecting it would make page tables for it.
                category_anyof_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
                return_mask: mask,
            };
            // SAFETY: the argument and the vector that it points to are valid for the call, which
            // writes at most `vec_len` regions and `walk_end`.
            let count =
                unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN as _, &raw mut argument) };
            if count < 0 {
                return Err(io::Error::last_os_error());
            }
            let count = (count as usize).min(found.len());
            for region in &found[..count] {
                push_run(runs, region.start, region.end);
            }
            // `walk_end` is wrong on some kernels once the result has more than 512 regions (seen
            // on 6.18). So fewer regions than fit mean that the end was reached; otherwise the walk
            // continues after the last region.
            if count < found.len() {
                return Ok(());
            }
            at = found[count - 1].end;
            found.resize(most, PageRegion::default());
        }
        Ok(())
    }

    fn scan_pagemap(&self, start: u64, end: u64, runs: &mut Vec<(u64, u64)>) -> io::Result<()> {
        let Some(pagemap) = &self.pagemap else {
            return Err(io::ErrorKind::NotFound.into());
        };
        const PRESENT: u64 = 1 << 63;
        const SWAPPED: u64 = 1 << 62;
        const FILE: u64 = 1 << 61;
        // A private page is mapped once: writers' mappings are not inherited by a forked child, and
        // the kernel does not merge equal pages in a mapping of a DAX file. A clean page of such a
        // file has neither this bit nor the one above, and from 6.15 on has both. Swapped-out pages
        // are private.
        const EXCLUSIVE: u64 = 1 << 56;
        let needed = match self.method {
            DirtyScan::PagemapExclusive => EXCLUSIVE | SWAPPED,
            _ => PRESENT | SWAPPED,
        };
        let mut entries = vec![0u8; 8 * 4096];
        let mut page = start / PAGE_BYTES;
        while page < end / PAGE_BYTES {
            let count = (end / PAGE_BYTES - page).min(4096) as usize;
            let bytes = &mut entries[..8 * count];
            pagemap.read_exact_at(bytes, page * 8)?;
            for (i, entry) in bytes.chunks_exact(8).enumerate() {
                let entry = u64::from_le_bytes(entry.try_into().unwrap_or_default());
                if entry & needed != 0 && entry & FILE == 0 {
                    let address = (page + i as u64) * PAGE_BYTES;
                    push_run(runs, address, address + PAGE_BYTES);
                }
            }
            page += count as u64;
        }
        Ok(())
    }
}

/// Takes every page: a scan that failed half-way is useless.
fn take_all(start: u64, end: u64, first: usize, runs: &mut Vec<(u64, u64)>) {
    runs.truncate(first);
    push_run(runs, start, end);
}

/// Appends a run, or extends the last one that it touches.
pub(crate) fn push_run(runs: &mut Vec<(u64, u64)>, start: u64, end: u64) {
    match runs.last_mut() {
        Some(last) if last.1 == start => last.1 = end,
        _ => runs.push((start, end)),
    }
}

#[cfg(test)]
mod watched;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::{AddressSpace, Sharing};
    use crate::storage::{Disk, OpenMode, Storage};

    /// Maps a file privately, writes to every third page and returns the runs that `method` finds.
    fn found_by(method: DirtyScan, pages: u64, base: u64) -> Vec<(u64, u64)> {
        let directory = tempfile::tempdir().unwrap();
        let file = Disk::default().open(&directory.path().join("f"), OpenMode::CreateNew).unwrap();
        file.allocate(0, pages * PAGE_BYTES).unwrap();
        let space = AddressSpace::new("test");
        space.reserve(base, 1 << 30).unwrap();
        let mapping = space.claim(base, pages * PAGE_BYTES).unwrap();
        mapping.map(&*file, base, pages * PAGE_BYTES, 0, Sharing::PrivateWritable).unwrap();
        for page in 0..pages {
            let at = (base + page * PAGE_BYTES) as *mut u8;
            // SAFETY: the page lies in the mapping created above.
            unsafe {
                assert_eq!(at.read_volatile(), 0);
                if page % 3 == 0 {
                    at.write_volatile(1);
                }
            }
        }
        let mut runs = Vec::new();
        PageScanner::with_method(method).scan(base, base + pages * PAGE_BYTES, &mut runs);
        runs
    }

    #[test]
    fn both_methods_find_exactly_the_written_pages_in_any_number_of_runs() {
        let pages = 3 * 5000;
        let base = 0x5e00_0000_0000;
        let expected: Vec<_> =
            (0..5000).map(|i| base + i * 3 * PAGE_BYTES).map(|a| (a, a + PAGE_BYTES)).collect();
        assert_eq!(found_by(DirtyScan::Pagemap, pages, base), expected);
        if PageScanner::new(false).method == DirtyScan::PagemapScan {
            assert_eq!(found_by(DirtyScan::PagemapScan, pages, base), expected);
        } else {
            eprintln!("SKIPPED: this kernel has no PAGEMAP_SCAN");
        }
    }

    #[test]
    fn exclusively_mapped_pages_are_exactly_the_written_ones() {
        let pages = 3 * 100;
        let base = 0x5ec0_0000_0000;
        let expected: Vec<_> =
            (0..100).map(|i| base + i * 3 * PAGE_BYTES).map(|a| (a, a + PAGE_BYTES)).collect();
        assert_eq!(found_by(DirtyScan::PagemapExclusive, pages, base), expected);
        assert_eq!(PageScanner::new(true).method, DirtyScan::PagemapExclusive);
    }

    #[test]
    fn the_fallback_takes_every_page() {
        let base = 0x5e80_0000_0000;
        assert_eq!(found_by(DirtyScan::Everything, 8, base), vec![(base, base + 8 * PAGE_BYTES)]);
    }

    /// Maps a file of zeros privately.
    fn mapped(pages: u64, base: u64) -> (tempfile::TempDir, crate::address::Mapping) {
        let directory = tempfile::tempdir().unwrap();
        let file = Disk::default().open(&directory.path().join("f"), OpenMode::CreateNew).unwrap();
        file.allocate(0, pages * PAGE_BYTES).unwrap();
        let space = AddressSpace::new("test");
        space.reserve(base, 1 << 30).unwrap();
        let mapping = space.claim(base, pages * PAGE_BYTES).unwrap();
        mapping.map(&*file, base, pages * PAGE_BYTES, 0, Sharing::PrivateWritable).unwrap();
        (directory, mapping)
    }

    #[test]
    fn a_watching_scan_finds_pages_stored_to_since_the_last_scan() {
        let (pages, base) = (3 * 5000, 0x5d00_0000_0000);
        let (_directory, _mapping) = mapped(pages, base);
        let end = base + pages * PAGE_BYTES;
        let store = |page: u64| {
            // SAFETY: the page lies in the mapping created above.
            unsafe { ((base + page * PAGE_BYTES) as *mut u8).write_volatile(1) };
        };
        let run =
            |page: u64, count: u64| (base + page * PAGE_BYTES, base + (page + count) * PAGE_BYTES);
        let mut scanner = PageScanner::new(false);
        if !scanner.watch(&[(base, end)]) {
            eprintln!("SKIPPED: this kernel cannot watch stores asynchronously");
            return;
        }
        let scan = |scanner: &PageScanner| {
            let mut runs = Vec::new();
            scanner.scan(base, end, &mut runs);
            runs
        };
        assert_eq!(scan(&scanner), []);
        (0..pages).step_by(3).for_each(store);
        let all: Vec<_> = (0..pages).step_by(3).map(|page| run(page, 1)).collect();
        assert_eq!(scan(&scanner), all, "more runs than one call returns");
        assert_eq!(scan(&scanner), [], "nothing was stored since");
        // A page that was present, one that was not, and a system call that writes to both kinds.
        store(6);
        store(7);
        let mut zeros = File::open("/dev/zero").unwrap();
        // SAFETY: the bytes lie in the mapping, and no other reference to them exists.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut((base + 100 * PAGE_BYTES) as *mut u8, 4 * 4096)
        };
        std::io::Read::read_exact(&mut zeros, bytes).unwrap();
        assert_eq!(scan(&scanner), [run(6, 2), run(100, 4)]);
        assert_eq!(scan(&scanner), []);
    }

    #[test]
    fn every_method_finds_pages_written_by_system_calls() {
        for (number, method) in [DirtyScan::PagemapScan, DirtyScan::Pagemap].into_iter().enumerate()
        {
            let base = 0x5d80_0000_0000 + (number as u64) * (2 << 30);
            let (_directory, _mapping) = mapped(16, base);
            if PageScanner::new(false).method != method && method == DirtyScan::PagemapScan {
                eprintln!("SKIPPED: this kernel has no PAGEMAP_SCAN");
                continue;
            }
            // SAFETY: the bytes lie in the mapping, and no other reference to them exists.
            let bytes =
                unsafe { std::slice::from_raw_parts_mut((base + 3 * PAGE_BYTES) as *mut u8, 4096) };
            std::io::Read::read_exact(&mut File::open("/dev/zero").unwrap(), bytes).unwrap();
            let mut runs = Vec::new();
            PageScanner::with_method(method).scan(base, base + 16 * PAGE_BYTES, &mut runs);
            assert_eq!(runs, [(base + 3 * PAGE_BYTES, base + 4 * PAGE_BYTES)]);
        }
    }
}
