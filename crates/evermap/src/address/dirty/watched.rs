//! Tests of scans that watch stores: single cases, and random steps against a model of the pages.

use std::io::Read;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::address::{AddressSpace, Mapping, Sharing};
use crate::storage::{Disk, File as StorageFile, OpenMode, Storage};

/// A file of zeros, mapped privately, and a scanner that watches it.
struct Watched {
    _directory: tempfile::TempDir,
    file: Arc<dyn StorageFile>,
    mapping: Mapping,
    pages: u64,
    scanner: PageScanner,
}

impl Watched {
    /// Returns `None` if the kernel cannot watch stores asynchronously.
    fn new(base: u64, pages: u64) -> Option<Watched> {
        let mut watched = Watched::unwatched(base, pages);
        watched.watch().then_some(watched)
    }

    fn unwatched(base: u64, pages: u64) -> Watched {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let file = Disk::default().open(&path, OpenMode::CreateNew).unwrap();
        file.set_length(pages * PAGE_BYTES).unwrap();
        file.advise_random().unwrap();
        let space = AddressSpace::new("test");
        space.reserve(base, (pages * PAGE_BYTES).next_multiple_of(1 << 30)).unwrap();
        let mapping = space.claim(base, pages * PAGE_BYTES).unwrap();
        let scanner = PageScanner::new(false);
        let watched = Watched { _directory: directory, file, mapping, pages, scanner };
        watched.map(0, pages);
        watched
    }

    /// Maps pages of the file, in place of the present ones. They are not watched.
    fn map(&self, page: u64, count: u64) {
        let (at, length) = (self.address(page), count * PAGE_BYTES);
        let sharing = Sharing::PrivateWritable;
        self.mapping.map(&*self.file, at, length, page * PAGE_BYTES, sharing).unwrap();
        self.mapping.advise_random(at, length);
    }

    fn watch(&mut self) -> bool {
        let watching = self.scanner.watch(&[(self.address(0), self.address(self.pages))]);
        if !watching {
            eprintln!("SKIPPED: this kernel cannot watch stores asynchronously");
        }
        watching
    }

    fn address(&self, page: u64) -> u64 {
        self.mapping.base() + page * PAGE_BYTES
    }

    fn load(&self, page: u64, count: u64) {
        for page in page..page + count {
            // SAFETY: the page is mapped.
            unsafe { (self.address(page) as *const u8).read_volatile() };
        }
    }

    fn store(&self, page: u64, count: u64) {
        for page in page..page + count {
            let at = self.address(page) as *mut u8;
            // SAFETY: the page is mapped writable.
            unsafe { at.write_volatile(at.read_volatile().wrapping_add(1)) };
        }
    }

    fn store_by_system_call(&self, page: u64, count: u64) {
        let length = (count * PAGE_BYTES) as usize;
        // SAFETY: the pages are mapped writable, and no other reference to them exists.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(self.address(page) as *mut u8, length) };
        File::open("/dev/zero").unwrap().read_exact(bytes).unwrap();
    }

    fn page_out(&self, page: u64, count: u64) {
        let (at, length) = (self.address(page) as *mut libc::c_void, count * PAGE_BYTES);
        // SAFETY: the pages are mapped; paging out keeps their contents. It is advice, so a failure
        // changes nothing.
        unsafe { libc::madvise(at, length as usize, libc::MADV_PAGEOUT) };
    }

    /// Lets a child inherit the memory, which stores to all of it and ends.
    fn fork(&self) {
        let (base, length) = (self.address(0), self.pages * PAGE_BYTES);
        self.mapping.inherit(base, length).unwrap();
        // SAFETY: a plain copy of the process with no stack of its own, as `fork` makes.
        let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
        if child == 0 {
            self.store(0, self.pages);
            // SAFETY: ends the child without running the parent's destructors.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above, which is no other thread's.
        let ended = unsafe { libc::waitpid(child as libc::pid_t, &raw mut status, 0) };
        assert_eq!((ended, status), (child as libc::pid_t, 0));
        self.mapping.leave_out_of_children(base, length);
    }

    /// Returns the pages that a scan finds, as runs of numbers.
    fn scan(&self) -> Vec<(u64, u64)> {
        let mut runs = Vec::new();
        self.scanner.scan(self.address(0), self.address(self.pages), &mut runs);
        let number = |address: u64| (address - self.address(0)) / PAGE_BYTES;
        runs.into_iter().map(|(start, end)| (number(start), number(end))).collect()
    }
}

const NOTHING: [(u64, u64); 0] = [];

#[test]
fn pages_that_were_only_read_are_not_found() {
    let pages = 4096;
    let mut watched = Watched::unwatched(0x5c00_0000_0000, pages);
    watched.load(0, pages);
    watched.store(7, 1);
    watched.store(2000, 2);
    if !watched.watch() {
        return;
    }
    assert_eq!(watched.scan(), [(7, 8), (2000, 2002)], "read before the watch began");
    assert_eq!(watched.scan(), NOTHING);
    watched.load(0, pages);
    assert_eq!(watched.scan(), NOTHING, "read again");
    watched.store(7, 1);
    watched.store(3000, 1);
    assert_eq!(watched.scan(), [(7, 8), (3000, 3001)]);
}

#[test]
fn pages_that_are_read_under_watch_are_found_at_most_once() {
    let Some(watched) = Watched::new(0x5c04_0000_0000, 4096) else { return };
    watched.load(0, 1000);
    watched.store(500, 1);
    assert_eq!(watched.scan(), [(500, 501)], "many pages");
    watched.load(2000, 3);
    assert!([&[][..], &[(2000, 2003)]].contains(&&watched.scan()[..]), "a few pages");
    watched.load(0, 4096);
    watched.scan();
    watched.load(0, 4096);
    assert_eq!(watched.scan(), NOTHING);
}

#[test]
fn a_scan_makes_no_page_tables() {
    // 64 GiB have 128 MiB of them.
    let Some(watched) = Watched::new(0x5700_0000_0000, (64 << 30) / PAGE_BYTES) else { return };
    let page_tables_kib = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmPTE:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    watched.store(5, 1);
    watched.load(watched.pages - 1, 1);
    let before = page_tables_kib();
    assert!(watched.scan().contains(&(5, 6)));
    assert_eq!(watched.scan(), NOTHING);
    // Other tests in the process use some.
    assert!(page_tables_kib() < before + (32 << 10));
}

#[test]
fn a_scan_that_fails_takes_every_page_and_loses_no_store() {
    let pages = 2048;
    let Some(mut watched) = Watched::new(0x5c0c_0000_0000, pages) else { return };
    watched.store(0, 10);
    watched.map(1024, 512);
    watched.store(1100, 1);
    assert_eq!(watched.scan(), [(0, pages)], "a part is not watched");
    watched.store(2000, 1);
    assert_eq!(watched.scan(), [(0, pages)]);
    watched.store(3, 1);
    watched.store(1200, 1);
    assert!(watched.watch());
    let found = watched.scan();
    for page in [3, 1100, 1200] {
        assert!(found.iter().any(|(start, end)| (*start..*end).contains(&page)), "{page}");
    }
    assert_eq!(watched.scan(), NOTHING);
}

#[test]
fn a_search_of_several_runs_finds_the_private_pages_of_each() {
    let Some(watched) = Watched::new(0x5c1c_0000_0000, 1024) else { return };
    watched.store(0, 200);
    watched.load(300, 100);
    watched.scan();
    // Private pages in the gaps are unchanged.
    watched.store(0, 20);
    watched.store(21, 30);
    watched.store(60, 5);
    watched.load(400, 50);
    watched.store(460, 40);
    let found = watched.scan();
    assert_eq!(found, [(0, 20), (21, 51), (60, 65), (460, 500)]);
    assert_eq!(watched.scan(), NOTHING);
}

#[test]
fn stores_into_huge_pages_of_the_page_cache_are_found() {
    let pages = 2048;
    let mut watched = Watched::unwatched(0x5c18_0000_0000, pages);
    let length = (pages * PAGE_BYTES) as usize;
    watched.file.write_at(&vec![1; length], 0).unwrap();
    let at = watched.address(0) as *mut libc::c_void;
    // SAFETY: the memory is mapped, and the advice changes no contents.
    unsafe { libc::madvise(at, length, libc::MADV_NORMAL) };
    watched.load(0, pages);
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let ours = maps.split_once(&format!("{:x}-", watched.address(0))).unwrap().1;
    let huge = ours.lines().find_map(|line| line.strip_prefix("FilePmdMapped:")).unwrap();
    if huge.trim() == "0 kB" {
        eprintln!("SKIPPED: the page cache has no huge pages here");
    }
    if !watched.watch() {
        return;
    }
    assert_eq!(watched.scan(), NOTHING);
    watched.store(700, 1);
    assert_eq!(watched.scan(), [(700, 701)]);
    watched.load(0, pages);
    assert_eq!(watched.scan(), NOTHING, "split by the store, then read again");
    watched.store(701, 1);
    watched.store_by_system_call(1500, 1);
    assert_eq!(watched.scan(), [(701, 702), (1500, 1501)]);
}

#[test]
fn swapped_out_pages_are_found_if_they_were_stored_to() {
    let Some(watched) = Watched::new(0x5c10_0000_0000, 64) else { return };
    watched.store(0, 64);
    watched.scan();
    watched.page_out(0, 64);
    let mut entry = [0; 8];
    let offset = watched.address(0) / PAGE_BYTES * 8;
    File::open("/proc/self/pagemap").unwrap().read_exact_at(&mut entry, offset).unwrap();
    if u64::from_le_bytes(entry) & 1 << 62 == 0 {
        eprintln!("SKIPPED: this machine has no swap space to spare");
        return;
    }
    assert_eq!(watched.scan(), NOTHING, "protected, then swapped out");
    watched.load(1, 1);
    assert_eq!(watched.scan(), NOTHING, "swapped in by a load");
    watched.store(2, 1);
    watched.store_by_system_call(4, 1);
    watched.page_out(0, 64);
    assert_eq!(watched.scan(), [(2, 3), (4, 5)], "swapped in by stores, and out again");
    assert_eq!(watched.scan(), NOTHING);
}

/// Pages of the random tests: three page tables and a part of one.
const PAGES: u64 = 3 * 512 + 100;

#[derive(Clone, Copy, Debug)]
enum Step {
    Load,
    Store,
    SystemCall,
    Populate,
    Drop,
    Map,
    PageOut,
    Fork,
    Scan,
    /// The watch ends and begins again.
    Watch,
}

/// State of a page, as far as the test can know it.
#[derive(Clone, Copy, Default)]
struct Page {
    /// Loaded or stored to since it was mapped or dropped.
    present: bool,
    private: bool,
    /// Write-protected by a scan.
    protected: bool,
    /// Stored to since the last scan.
    stored: bool,
    /// It may be protected without a scan, or unmapped.
    unknown: bool,
    /// Loaded or stored to since it is unknown.
    touched: bool,
}

impl Page {
    fn apply(&mut self, step: Step) {
        match step {
            Step::Load => (self.present, self.touched) = (true, true),
            Step::Store | Step::SystemCall | Step::Populate => {
                (self.present, self.touched) = (true, true);
                (self.private, self.protected) = (true, false);
                self.stored |= !matches!(step, Step::Populate);
            }
            Step::Drop => *self = Page { unknown: true, ..Page::default() },
            Step::Map => *self = Page::default(),
            Step::PageOut => (self.unknown, self.touched) = (true, false),
            Step::Fork => {}
            Step::Scan => {
                self.stored = false;
                self.unknown &= !self.touched;
                self.protected = self.present && !self.unknown;
            }
            Step::Watch => self.protected = false,
        }
    }
}

/// Returns the pages that a scan may find.
fn allowed(pages: &[Page]) -> Vec<bool> {
    let mut allowed = Vec::new();
    for run in pages.chunk_by(|a, b| is_unprotected(a) == is_unprotected(b)) {
        let short = (run.len() as u64 * PAGE_BYTES) < SEARCHED_BYTES_MIN;
        let inexact = short || run.iter().any(|page| page.unknown);
        allowed.extend(run.iter().map(|page| is_unprotected(page) && (page.private || inexact)));
    }
    allowed
}

fn is_unprotected(page: &Page) -> bool {
    page.present && !page.protected
}

fn steps() -> impl Strategy<Value = Vec<(Step, u64, u64)>> {
    let step = prop_oneof![
        8 => Just(Step::Load),
        8 => Just(Step::Store),
        2 => Just(Step::SystemCall),
        2 => Just(Step::Populate),
        3 => Just(Step::Drop),
        1 => Just(Step::Map),
        1 => Just(Step::PageOut),
        1 => Just(Step::Fork),
        6 => Just(Step::Scan),
        1 => Just(Step::Watch),
    ];
    let count = prop_oneof![3 => 1..4_u64, 2 => 4..40_u64, 1 => 40..PAGES];
    let range = (0..PAGES, count).prop_map(|(first, count)| (first, count.min(PAGES - first)));
    prop::collection::vec((step, range).prop_map(|(step, (first, count))| (step, first, count)), 40)
}

fn run(steps: Vec<(Step, u64, u64)>) -> Result<(), TestCaseError> {
    let Some(mut watched) = Watched::new(0x5c14_0000_0000, PAGES) else { return Ok(()) };
    let mut pages = vec![Page::default(); PAGES as usize];
    for (number, (step, first, count)) in steps.into_iter().enumerate() {
        let (at, length) = (watched.address(first), count * PAGE_BYTES);
        let (mut first, mut end) = (first as usize, (first + count) as usize);
        match step {
            Step::Load => watched.load(first as u64, count),
            Step::Store => watched.store(first as u64, count),
            Step::SystemCall => watched.store_by_system_call(first as u64, count),
            Step::Populate => watched.mapping.populate(at, length),
            Step::Drop => watched.mapping.drop_private(at, length).unwrap(),
            Step::Map => {
                watched.map(first as u64, count);
                prop_assert!(watched.scanner.watch(&[(at, at + length)]));
            }
            Step::PageOut => watched.page_out(first as u64, count),
            Step::Fork => watched.fork(),
            Step::Scan => {
                let mut found = vec![false; PAGES as usize];
                for (start, end) in watched.scan() {
                    found[start as usize..end as usize].fill(true);
                }
                for (page, may) in allowed(&pages).into_iter().enumerate() {
                    let state = &pages[page];
                    prop_assert!(found[page] || !state.stored, "step {number} misses page {page}");
                    prop_assert!(may || !found[page], "step {number} finds page {page}");
                }
                prop_assert_eq!(watched.scan(), NOTHING);
                (first, end) = (0, PAGES as usize);
            }
            Step::Watch => {
                watched.scanner.watch = None;
                // A child of another test may still hold the watch.
                if !watched.watch() {
                    return Ok(());
                }
                (first, end) = (0, PAGES as usize);
            }
        }
        pages[first..end].iter_mut().for_each(|page| page.apply(step));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 50,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_scans_miss_no_store_and_find_no_page_that_is_protected(steps in steps()) {
        run(steps)?;
    }
}
