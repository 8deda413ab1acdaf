//! The private pages of a writer's mapping: finds changed ones, compares them with the last commit,
//! and restores them.
//!
//! This file reads and writes the program's memory; `committed` reads the file. The rest of
//! `commit` handles numbers and byte slices. Unsafe code here relies on stopped writers
//! ([`WriterKind::Host`]) or on copies ([`WriterKind::Guest`]).

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use super::checksums;
use super::committed::{Committed, data_ranges};
use super::overlay::PageHasher;
use super::record::{Page, RecordBuilder, for_each_run};
use super::suspects::SuspectSearch;
use super::target::{Span, WriterKind};
use crate::address::{Mapping, PageScanner, Sharing, drop_private_runs, push_run};
use crate::error::Result;
use crate::format::{
    FEATURE_HOLES, PAGE_BYTES, RegionRecord, SUPERBLOCK_CHECKED_BYTES, Superblock,
};
use crate::mutate::{Mutant, mutated};
use crate::storage::File;

/// Spans of the object that are mapped private, and the state of their pages.
#[derive(Debug)]
pub(super) struct PrivatePages {
    writer_kind: WriterKind,
    /// The first one begins with page 0 of the file.
    spans: Vec<Span>,
    /// Copy of a guest's page 0, made when the current commit began.
    page_zero_copied: Option<Box<Page>>,
    scanner: PageScanner,
    /// Runs that a scan found and no commit has taken yet.
    pending: Vec<Run>,
    /// Pending pages that the last comparison found unchanged: starts and ends. Some may not be
    /// private.
    unchanged: Vec<(u64, u64)>,
    retained: RetainedPages,
}

impl PrivatePages {
    /// Takes over mapped spans. Lays the overlay's lines over their pages, for a writer that could
    /// not apply them.
    pub(super) fn new(
        spans: Vec<Span>,
        writer_kind: WriterKind,
        committed: &Committed,
    ) -> PrivatePages {
        let direct = committed.object().is_direct();
        let pages = PrivatePages {
            writer_kind,
            spans,
            page_zero_copied: None,
            scanner: PageScanner::new(direct),
            pending: Vec::new(),
            unchanged: Vec::new(),
            retained: RetainedPages::new(!direct),
        };
        if !committed.overlay().is_empty() {
            for span in &pages.spans {
                pages.lay_overlay_over(committed, span, span.address, span.length);
            }
        }
        pages
    }

    /// Begins a commit: copies a guest's page 0, of which only the copy is used from then on, and
    /// adds the private pages that a scan finds to the pending ones.
    pub(super) fn scan(&mut self) {
        if self.writer_kind == WriterKind::Guest {
            let mut page = Box::new([0; PAGE_BYTES as usize]);
            // SAFETY: the first span begins with page 0 and is mapped.
            unsafe { copy_page(self.spans[0].address, &mut page) };
            self.page_zero_copied = Some(page);
        }
        self.find_changed();
    }

    /// Adds the private pages that a scan finds to `pending`, except page 0.
    fn find_changed(&mut self) {
        // A session with one commit does not pay for a watch.
        if self.retained.allowed && self.retained.commits() > 0 && !self.scanner.is_watching() {
            self.watch_spans();
        }
        let mut found = Vec::new();
        let first_try = self.pending.is_empty();
        for (index, span) in self.spans.iter().enumerate() {
            let skip = if span.file_offset == 0 { PAGE_BYTES } else { 0 };
            found.clear();
            self.scanner.scan(span.address + skip, span.address + span.length, &mut found);
            self.pending.extend(found.iter().map(|&(start, end)| Run {
                span: index,
                address: start,
                length: end - start,
            }));
        }
        if !first_try {
            merge(&mut self.pending);
        }
    }

    /// Makes scans find later stores to pages that stay private.
    fn watch_spans(&mut self) {
        let ranges: Vec<(u64, u64)> =
            self.spans.iter().map(|s| (s.address, s.address + s.length)).collect();
        self.retained.allowed = self.scanner.watch(&ranges);
    }

    /// Adds the changed lines of the pending pages to the record, and their checksums to `entries`.
    pub(super) fn compare(
        &mut self,
        committed: &mut Committed,
        record: &mut RecordBuilder,
        entries: &mut Vec<(u64, u32)>,
        mut search: Option<&mut SuspectSearch<'_>>,
    ) -> Result<()> {
        // Not for guests: if another process truncates their file, reading through a view would
        // kill the host, while a read call only fails.
        if !self.pending.is_empty() && self.writer_kind == WriterKind::Host {
            self.spans.iter().try_for_each(|span| committed.ensure_view(span))?;
        }
        let committed = &*committed;
        let had_holes = self.has_or_had_holes();
        let mut page_copy = [0; PAGE_BYTES as usize];
        let mut copy = [0; PAGE_BYTES as usize];
        let mut unchanged = std::mem::take(&mut self.unchanged);
        unchanged.clear();
        for run in &self.pending {
            for (address, number) in self.pages_of(run) {
                // Tables are changed through the file, not through the program's mapping, whose
                // copies of them are stale.
                if committed.is_table_page(number) {
                    continue;
                }
                // SAFETY: the run lies in a span, which is mapped for as long as it is held.
                let now = unsafe { self.current_page(address, &mut page_copy) };
                let stored = committed.stored(number, &mut copy)?;
                let mut lines = committed.overlay().changed_lines(number, now, stored);
                // After a crash the file may have any contents where a hole is used again. A page
                // that was only read is not used.
                if had_holes
                    && committed.has_unknown_checksum(number)?
                    && (lines != 0 || self.scanner.is_private(address))
                {
                    lines = u64::MAX;
                }
                if lines != 0 {
                    record.push(number, lines, now);
                    if let Some(search) = &mut search {
                        search.at((address, number), lines, now, (stored, committed.overlay()))?;
                    }
                    if committed.has_tables() {
                        entries.push((number, checksums::entry_of(number, now)));
                    }
                } else {
                    push_run(&mut unchanged, address, address + PAGE_BYTES);
                }
            }
        }
        self.unchanged = unchanged;
        Ok(())
    }

    /// Address and number in the file of each page of a run.
    fn pages_of(&self, run: &Run) -> impl Iterator<Item = (u64, u64)> + use<> {
        let span = &self.spans[run.span];
        let to_offset = span.file_offset.wrapping_sub(span.address);
        (run.address..run.address + run.length)
            .step_by(PAGE_BYTES as usize)
            .map(move |address| (address, address.wrapping_add(to_offset) / PAGE_BYTES))
    }

    /// Returns true if chunks of the object were ever given back to the file system, or gained
    /// without disk space.
    fn has_or_had_holes(&self) -> bool {
        const AT: usize = std::mem::offset_of!(Superblock, features_incompatible);
        let mut features = [0; size_of::<u64>()];
        features.copy_from_slice(&self.page_zero()[AT..AT + size_of::<u64>()]);
        let has = u64::from_le_bytes(features) & FEATURE_HOLES != 0;
        has && !mutated(Mutant::UsedHolesUnknown)
    }

    /// Calls `each` with the address of every private page that differs from the last commit, until
    /// it returns false. The pages found are remembered for the next commit.
    pub(super) fn for_each_changed(
        &mut self,
        committed: &Committed,
        mut each: impl FnMut(u64) -> bool,
    ) -> Result<()> {
        self.find_changed();
        let mut stored = [0; PAGE_BYTES as usize];
        let mut page_copy = [0; PAGE_BYTES as usize];
        for run in &self.pending {
            for (address, number) in self.pages_of(run) {
                if committed.is_table_page(number) {
                    continue;
                }
                committed.read_stored(number, &mut stored)?;
                // SAFETY: the run lies in a span, which is mapped for as long as it is held.
                let now = unsafe { self.current_page(address, &mut page_copy) };
                let lines = committed.overlay().changed_lines(number, now, &stored);
                if lines != 0 && !each(address) {
                    return Ok(());
                }
            }
        }
        if self.changes_of_page_zero(committed)? != 0 {
            each(self.spans[0].address);
        }
        Ok(())
    }

    /// Adds the checksums of uncommitted memory that was touched. The rest is zeros.
    pub(super) fn add_fresh_entries(
        &self,
        committed: &Committed,
        span: &Span,
        entries: &mut Vec<(u64, u32)>,
        mut search: Option<&mut SuspectSearch<'_>>,
    ) -> Result<()> {
        if !committed.has_tables() && search.is_none() {
            return Ok(());
        }
        let (mut at, end) = (span.file_offset, span.file_offset + span.length);
        let mut page_copy = [0; PAGE_BYTES as usize];
        for (start, stop) in data_ranges(&**committed.object(), at, end)? {
            committed.add_zero_entries(at, start, entries)?;
            for offset in (start..stop).step_by(PAGE_BYTES as usize) {
                let address = span.address + (offset - span.file_offset);
                // SAFETY: the span is mapped and backed by the file.
                let now = unsafe { self.current_page(address, &mut page_copy) };
                if let Some(search) = &mut search {
                    search.at_fresh(address, now)?;
                }
                if committed.has_tables() {
                    let number = offset / PAGE_BYTES;
                    entries.push((number, checksums::entry_of(number, now)));
                }
            }
            at = stop;
        }
        committed.add_zero_entries(at, end, entries)
    }

    /// Page 0 in memory; for a guest, the copy made when the commit began.
    pub(super) fn page_zero(&self) -> &Page {
        match &self.page_zero_copied {
            Some(copied) => copied,
            // SAFETY: the first span begins with page 0 and is mapped; writers are stopped.
            None => unsafe { page_at(self.spans[0].address) },
        }
    }

    /// Seals page 0, in memory as well.
    pub(super) fn seal_page_zero(&mut self, sequence: u64, seal: impl FnOnce(u64, &mut Page)) {
        let address = self.spans[0].address;
        match &mut self.page_zero_copied {
            Some(copied) => {
                seal(sequence, copied);
                let to = address as *mut u8;
                // SAFETY: page 0 is mapped writable, and no Rust reference points into a guest's
                // memory.
                unsafe { to.copy_from_nonoverlapping(copied.as_ptr(), SUPERBLOCK_CHECKED_BYTES) };
            }
            // SAFETY: page 0 is mapped writable, and writers are stopped.
            None => seal(sequence, unsafe { &mut *(address as *mut Page) }),
        }
    }

    /// Returns a page of the program's memory: in place, or copied if other code may store to it.
    ///
    /// # Safety
    /// `address` begins a mapped page of one of the spans.
    unsafe fn current_page<'a>(&self, address: u64, copy: &'a mut Page) -> &'a Page {
        match self.writer_kind {
            // SAFETY: as the caller promises; the caller of `commit` has stopped every writer.
            WriterKind::Host => unsafe { page_at(address) },
            WriterKind::Guest => {
                // SAFETY: as the caller promises.
                unsafe { copy_page(address, copy) };
                copy
            }
        }
    }

    /// Returns the lines in which page 0 differs from the last commit.
    pub(super) fn changes_of_page_zero(&self, committed: &Committed) -> Result<u64> {
        let mut copy = [0; PAGE_BYTES as usize];
        let stored = committed.stored(0, &mut copy)?;
        Ok(committed.overlay().changed_lines(0, self.page_zero(), stored))
    }

    /// Notes that the pending pages are in the log. They stay private.
    pub(super) fn mark_committed(&mut self) {
        self.retained.committed(std::mem::take(&mut self.pending));
        self.retained.latest -= self.forget_pages_that_were_read();
    }

    /// Notes that the pending pages equal the last commit. They stay private.
    pub(super) fn mark_unchanged(&mut self) {
        self.retained.keep(std::mem::take(&mut self.pending));
        self.forget_pages_that_were_read();
    }

    /// Removes pages that are not private from the retained ones, since scans also find some pages
    /// that were only read. Returns their number.
    fn forget_pages_that_were_read(&mut self) -> usize {
        if !self.scanner.is_watching() {
            return 0;
        }
        let (mut forgotten, mut private) = (0, Vec::new());
        for &(start, end) in &self.unchanged {
            private.clear();
            self.scanner.scan_private(start, end, &mut private);
            let mut at = start;
            for (first, behind) in private.iter().copied().chain([(end, end)]) {
                forgotten += self.retained.forget(at, first);
                at = behind;
            }
        }
        forgotten
    }

    /// Turns fresh ranges into committed ones: stores there are private from now on.
    pub(super) fn adopt(&mut self, object: &dyn File, fresh: Vec<Span>) -> Result<()> {
        for span in fresh {
            debug_assert!(span.length > 0 && span.length.is_multiple_of(PAGE_BYTES));
            map_private(object, &span)?;
            if self.scanner.is_watching() {
                self.scanner.watch(&[(span.address, span.address + span.length)]);
            }
            let neighbour = self.spans.iter_mut().find(|c| {
                Arc::ptr_eq(&c.mapping, &span.mapping) && c.address + c.length == span.address
            });
            match neighbour {
                Some(c) => {
                    debug_assert_eq!(c.file_offset + c.length, span.file_offset);
                    c.length += span.length;
                }
                None => self.spans.push(span),
            }
        }
        Ok(())
    }

    /// Maps all spans from another file that holds the last commit.
    pub(super) fn map_all(&self, object: &dyn File) -> Result<()> {
        self.spans.iter().try_for_each(|span| map_private(object, span))
    }

    /// Notes that all spans were mapped again: no page is private.
    pub(super) fn forget_retained(&mut self) {
        if self.scanner.is_watching() {
            self.watch_spans();
        }
        self.retained.take(true);
    }

    /// Bytes of retained pages, and of those that were in the last commit. `None` if later stores
    /// to them could not be found, so they must not be retained.
    pub(super) fn retained_bytes(&self) -> Option<(u64, u64)> {
        self.retained.allowed.then(|| self.retained.bytes())
    }

    /// Evicts retained pages that the file has: those that were not in the last commit, or all.
    pub(super) fn evict_retained(&mut self, also_latest: bool) -> Result<()> {
        let addresses = self.retained.take(also_latest);
        let mut runs = Vec::new();
        for run in addresses.chunk_by(|a, b| a + PAGE_BYTES == *b) {
            let (mut at, end) = (run[0], run[0] + run.len() as u64 * PAGE_BYTES);
            while at < end {
                let part = self.run_at(at, end - at);
                at += part.map_or(PAGE_BYTES, |part| part.length);
                runs.extend(part);
            }
        }
        self.drop_runs(&runs)
    }

    /// Discards all stores since the last commit.
    pub(super) fn roll_back(&mut self, committed: &Committed) -> Result<()> {
        self.find_changed();
        let mut runs = std::mem::take(&mut self.pending);
        if let Some(first) = self.spans.first() {
            runs.push(Run { span: 0, address: first.address, length: PAGE_BYTES });
        }
        self.drop_runs(&runs)?;
        for run in runs {
            self.lay_overlay_over(committed, &self.spans[run.span], run.address, run.length);
        }
        Ok(())
    }

    /// Returns runs for the address ranges that begin in a committed span. Skips others.
    pub(super) fn runs_at(&self, ranges: &[(u64, u64)]) -> Vec<Run> {
        ranges.iter().filter_map(|&(address, length)| self.run_at(address, length)).collect()
    }

    /// Returns the run for the part of an address range in the span where the range begins. Another
    /// region may begin where a span ends.
    fn run_at(&self, address: u64, length: u64) -> Option<Run> {
        let span = self
            .spans
            .iter()
            .position(|s| address >= s.address && address - s.address < s.length)?;
        let end = self.spans[span].address + self.spans[span].length;
        Some(Run { span, address, length: length.min(end - address) })
    }

    /// Returns the parts of the file that the runs show: offset and length.
    pub(super) fn places_of(&self, runs: &[Run]) -> impl Iterator<Item = (u64, u64)> {
        runs.iter().map(|run| {
            let span = &self.spans[run.span];
            (span.file_offset + (run.address - span.address), run.length)
        })
    }

    /// Shortens the spans to the regions, which a commit has made shorter.
    pub(super) fn shorten(&mut self, regions: &[RegionRecord]) {
        for span in &mut self.spans {
            let region = regions
                .iter()
                .find(|r| span.address >= r.base && span.address - r.base < r.capacity);
            if let Some(region) = region {
                let end = (region.base + region.length).max(span.address);
                span.length = span.length.min(end - span.address);
            }
        }
        self.spans.retain(|span| span.length > 0);
    }

    fn lay_overlay_over(&self, committed: &Committed, span: &Span, address: u64, length: u64) {
        let overlay = committed.overlay();
        let first = (span.file_offset + (address - span.address)) / PAGE_BYTES;
        let pages = length / PAGE_BYTES;
        let numbers = if pages <= 64 {
            (first..first + pages).filter(|n| overlay.lines(*n).is_some()).collect()
        } else {
            let mut numbers = overlay.page_numbers();
            numbers.retain(|n| (first..first + pages).contains(n));
            numbers
        };
        for number in numbers {
            let Some((mask, lines)) = overlay.lines(number) else { continue };
            if committed.is_table_page(number) {
                continue;
            }
            let page = address + (number - first) * PAGE_BYTES;
            for_each_run(mask, lines, |at, bytes| {
                let to = (page + at as u64) as *mut u8;
                // SAFETY: the page lies in a span that is mapped writable and private. Writers are
                // stopped, and the page is not referenced elsewhere. A run ends inside its page.
                unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
            });
        }
    }

    /// Drops private copies, so the mapping shows the file's pages again.
    pub(super) fn drop_runs(&self, runs: &[Run]) -> Result<()> {
        let ranges: Vec<(&Mapping, u64, u64)> =
            runs.iter().map(|r| (&*self.spans[r.span].mapping, r.address, r.length)).collect();
        drop_private_runs(&ranges)
    }
}

fn map_private(object: &dyn File, span: &Span) -> Result<()> {
    let Span { mapping, address, length, file_offset } = span;
    mapping.map(object, *address, *length, *file_offset, Sharing::PrivateWritable)?;
    mapping.advise_random(*address, *length);
    Ok(())
}

/// A run of pages that may be private.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    span: usize,
    address: u64,
    length: u64,
}

/// Pages that stay private after their commit, so that storing to them again is cheap.
#[derive(Debug)]
struct RetainedPages {
    /// Number of the last commit that had each page, by address.
    pages: HashMap<u64, u64, BuildHasherDefault<PageHasher>>,
    commits: u64,
    latest: usize,
    /// True if pages may be retained. Requires that scans can find later stores to them.
    allowed: bool,
}

impl RetainedPages {
    fn new(allowed: bool) -> RetainedPages {
        RetainedPages { pages: HashMap::default(), commits: 0, latest: 0, allowed }
    }

    /// Notes the pages of a commit.
    fn committed(&mut self, runs: Vec<Run>) {
        self.commits += 1;
        self.latest = 0;
        for run in runs {
            for address in (run.address..run.address + run.length).step_by(PAGE_BYTES as usize) {
                self.pages.insert(address, self.commits);
                self.latest += 1;
            }
        }
    }

    /// Notes pages that were found unchanged.
    fn keep(&mut self, runs: Vec<Run>) {
        for run in runs {
            for address in (run.address..run.address + run.length).step_by(PAGE_BYTES as usize) {
                self.pages.entry(address).or_insert(self.commits);
            }
        }
    }

    /// Forgets the pages of a range, which are not private. Returns their number.
    fn forget(&mut self, start: u64, end: u64) -> usize {
        let pages = (start..end).step_by(PAGE_BYTES as usize);
        pages.filter(|address| self.pages.remove(address).is_some()).count()
    }

    /// Number of commits so far.
    fn commits(&self) -> u64 {
        self.commits
    }

    /// Bytes of retained pages, and of those that were in the last commit.
    fn bytes(&self) -> (u64, u64) {
        (self.pages.len() as u64 * PAGE_BYTES, self.latest as u64 * PAGE_BYTES)
    }

    /// Removes and returns the pages that were not in the last commit, or all; ascending.
    fn take(&mut self, also_latest: bool) -> Vec<u64> {
        let latest = self.commits;
        let mut taken = Vec::new();
        self.pages.retain(|address, commit| {
            let stays = *commit == latest && !also_latest;
            if !stays {
                taken.push(*address);
            }
            stays
        });
        if also_latest {
            self.latest = 0;
        }
        taken.sort_unstable();
        taken
    }
}

/// Sorts runs and joins those that overlap or touch.
fn merge(runs: &mut Vec<Run>) {
    runs.sort_unstable_by_key(|r| r.address);
    let mut merged: Vec<Run> = Vec::with_capacity(runs.len());
    for run in runs.drain(..) {
        match merged.last_mut() {
            Some(last) if last.span == run.span && run.address <= last.address + last.length => {
                let end = (run.address + run.length).max(last.address + last.length);
                last.length = end - last.address;
            }
            _ => merged.push(run),
        }
    }
    *runs = merged;
}

/// # Safety
/// `address` begins a mapped page that is not written to while the reference lives.
pub(super) unsafe fn page_at<'a>(address: u64) -> &'a Page {
    // SAFETY: as the caller promises; a page has no invalid bit patterns.
    unsafe { &*(address as *const Page) }
}

/// Copies a page that other code may be storing to, word by word.
///
/// # Safety
/// `address` begins a mapped page.
unsafe fn copy_page(address: u64, copy: &mut Page) {
    let words = address as *const u64;
    for (index, word) in copy.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        // SAFETY: the word lies in the page. Only non-Rust code stores there, and a volatile access
        // is one load of the current value.
        *word = unsafe { words.add(index).read_volatile() }.to_ne_bytes();
    }
}
