//! Finds private pages, compares them with their committed pages, and produces the checksums of a
//! commit.
//!
//! This file is the only one in `commit` that reads and writes mapped memory: the mapping's private
//! pages, and the file's pages through views. The rest of `commit` handles numbers and byte slices.
//! Unsafe code here relies on stopped writers ([`WriterKind::Host`]) or on copies
//! ([`WriterKind::Guest`]).

use super::checksums::{self, EntryPlace, TableLine, Tables};
use super::diff::Page;
use super::engine::Engine;
use super::overlay::Overlay;
use super::record::{RecordBuilder, for_each_run};
use super::runs::{Run, merge};
use super::suspects::SuspectSearch;
use super::target::{Span, WriterKind};
use super::verify::BadPage;
use crate::address::{Mapping, View, drop_private_runs};
use crate::error::{Error, Result};
use crate::format::{
    CHECKSUM_UNKNOWN, FEATURE_HOLES, LINE_BYTES, PAGE_BYTES, RegionRecord,
    SUPERBLOCK_CHECKED_BYTES, Superblock,
};
use crate::mutate::{Mutant, mutated};
use crate::storage::File;

impl Engine {
    /// Adds the private pages that a scan finds to `pending`, except page 0.
    pub(super) fn find_changed(&mut self) {
        if self.retained.allowed && self.retained.commits() > 0 && !self.scanner.is_watching() {
            let ranges: Vec<(u64, u64)> =
                self.spans.iter().map(|s| (s.address, s.address + s.length)).collect();
            self.retained.allowed = self.scanner.watch(&ranges);
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

    /// Adds the changed lines of the pending pages to the record, and their checksums to `entries`.
    pub(super) fn compare(
        &mut self,
        record: &mut RecordBuilder,
        entries: &mut Vec<(u64, u32)>,
        mut search: Option<&mut SuspectSearch<'_>>,
    ) -> Result<()> {
        self.create_views()?;
        let had_holes = self.has_or_had_holes();
        let mut page_copy = [0; PAGE_BYTES as usize];
        let mut copy = [0; PAGE_BYTES as usize];
        for run in &self.pending {
            let span = &self.spans[run.span];
            let view = self.view_of(span.file_offset);
            for address in (run.address..run.address + run.length).step_by(PAGE_BYTES as usize) {
                let offset = span.file_offset + (address - span.address);
                let number = offset / PAGE_BYTES;
                // Tables are changed through the file, not through the program's mapping, whose
                // copies of them are stale.
                if self.tables.is_table_page(number) {
                    continue;
                }
                // SAFETY: the run lies in a span that is mapped for as long as the engine holds it.
                let now = unsafe { self.current_page(address, &mut page_copy) };
                let stored = match view {
                    // SAFETY: the page is within the committed length, which the file has; its
                    // bytes change only in an apply, by this engine.
                    Some(view) => unsafe { view.page(offset) },
                    None => {
                        self.read_stored(number, &mut copy)?;
                        &copy
                    }
                };
                let mut lines = self.overlay.changed_lines(number, now, stored);
                // After a crash the file may have any contents where a hole is used again.
                if had_holes && self.has_unknown_checksum(number)? {
                    lines = u64::MAX;
                }
                if lines != 0 {
                    record.push(number, lines, now);
                    if let Some(search) = &mut search {
                        search.at((address, number), lines, now, (stored, &self.overlay))?;
                    }
                    if !self.tables.is_empty() {
                        entries.push((number, checksums::entry_of(number, now)));
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns true if chunks of the object were ever given back to the file system.
    fn has_or_had_holes(&self) -> bool {
        const AT: usize = std::mem::offset_of!(Superblock, features_incompatible);
        let mut features = [0; size_of::<u64>()];
        features.copy_from_slice(&self.page_zero()[AT..AT + size_of::<u64>()]);
        let has = u64::from_le_bytes(features) & FEATURE_HOLES != 0;
        has && !mutated(Mutant::UsedHolesUnknown)
    }

    /// Returns true if the page's contents were unspecified in the last commit.
    pub(super) fn has_unknown_checksum(&self, number: u64) -> Result<bool> {
        let Some(place) = self.tables.place(number) else { return Ok(false) };
        let line = self.committed_line(place.table_page, place.line)?;
        Ok(checksums::entry_at(&line, place.index) == CHECKSUM_UNKNOWN)
    }

    /// Calls `each` with the address of every private page that differs from the last commit, until
    /// it returns false. The pages found are remembered for the next commit.
    pub(crate) fn for_each_changed_page(
        &mut self,
        mut each: impl FnMut(u64) -> bool,
    ) -> Result<()> {
        self.check_usable()?;
        self.find_changed();
        let mut stored = [0; PAGE_BYTES as usize];
        let mut page_copy = [0; PAGE_BYTES as usize];
        for run in &self.pending {
            let span = &self.spans[run.span];
            for address in (run.address..run.address + run.length).step_by(PAGE_BYTES as usize) {
                let number = (span.file_offset + (address - span.address)) / PAGE_BYTES;
                if self.tables.is_table_page(number) {
                    continue;
                }
                self.read_stored(number, &mut stored)?;
                // SAFETY: the run lies in a span that is mapped for as long as the engine holds it.
                let now = unsafe { self.current_page(address, &mut page_copy) };
                if self.overlay.changed_lines(number, now, &stored) != 0 && !each(address) {
                    return Ok(());
                }
            }
        }
        if self.page_zero_changed()? {
            each(self.spans[0].address);
        }
        Ok(())
    }

    /// Adds the checksums of uncommitted memory that was touched. The rest is zeros.
    pub(super) fn add_fresh_entries(
        &self,
        span: &Span,
        entries: &mut Vec<(u64, u32)>,
        mut search: Option<&mut SuspectSearch<'_>>,
    ) -> Result<()> {
        if self.tables.is_empty() && search.is_none() {
            return Ok(());
        }
        let (mut at, end) = (span.file_offset, span.file_offset + span.length);
        let mut page_copy = [0; PAGE_BYTES as usize];
        for (start, stop) in data_ranges(&*self.object, at, end)? {
            self.add_zero_entries(at, start, entries)?;
            for offset in (start..stop).step_by(PAGE_BYTES as usize) {
                let address = span.address + (offset - span.file_offset);
                // SAFETY: the span is mapped and backed by the file.
                let now = unsafe { self.current_page(address, &mut page_copy) };
                if let Some(search) = &mut search {
                    search.at_fresh(address, now)?;
                }
                if !self.tables.is_empty() {
                    let number = offset / PAGE_BYTES;
                    entries.push((number, checksums::entry_of(number, now)));
                }
            }
            at = stop;
        }
        self.add_zero_entries(at, end, entries)
    }

    /// Adds the checksums of untouched pages between two offsets of the file. Earlier contents of
    /// the region may have left entries in the table.
    fn add_zero_entries(&self, from: u64, to: u64, entries: &mut Vec<(u64, u32)>) -> Result<()> {
        let (mut page, end) = (from / PAGE_BYTES, to / PAGE_BYTES);
        let mut table = [0; PAGE_BYTES as usize];
        while page < end {
            let Some(place) = self.tables.place(page) else {
                page += 1;
                continue;
            };
            let next = (page + place.left_in_page()).min(end);
            self.read_stored(place.table_page, &mut table)?;
            self.overlay.patch(place.table_page, &mut table);
            if table != [0; PAGE_BYTES as usize] {
                entries.extend((page..next).map(|page| (page, 0)));
            }
            page = next;
        }
        Ok(())
    }

    /// Adds the table lines that these entries change.
    pub(super) fn add_table_lines(
        &self,
        entries: &[(u64, u32)],
        record: &mut RecordBuilder,
    ) -> Result<()> {
        let mut places: Vec<(EntryPlace, u32)> = entries
            .iter()
            .filter_map(|(page, entry)| Some((self.tables.place(*page)?, *entry)))
            .collect();
        places.sort_unstable();
        let mut lines = Vec::new();
        for of_page in places.chunk_by(|a, b| a.0.table_page == b.0.table_page) {
            let number = of_page[0].0.table_page;
            let mut mask = 0;
            lines.clear();
            for of_line in of_page.chunk_by(|a, b| a.0.line == b.0.line) {
                let index = of_line[0].0.line;
                let committed = self.committed_line(number, index)?;
                // Sealing the line again would hide the damage.
                if !checksums::is_sealed(&committed) {
                    return Err(Error::Damaged {
                        path: self.object.path().to_path_buf(),
                        what: "a line of the checksum table",
                        found: format!(
                            "a line at byte {} with a wrong checksum",
                            number * PAGE_BYTES + (index * LINE_BYTES) as u64
                        ),
                        expected: "a line that matches its checksum".to_string(),
                    });
                }
                let mut now = committed;
                for (place, entry) in of_line {
                    checksums::set_entry(&mut now, place.index, *entry);
                }
                checksums::seal(&mut now);
                if now != committed {
                    mask |= 1 << index;
                    lines.extend_from_slice(&now);
                }
            }
            if mask != 0 {
                record.push_lines(number, mask, &lines);
            }
        }
        Ok(())
    }

    /// Reads a line of a committed page.
    fn committed_line(&self, number: u64, index: usize) -> Result<TableLine> {
        if let Some(line) = self.overlay.line(number, index) {
            return Ok(*line);
        }
        let mut line = [0; LINE_BYTES];
        let offset = number * PAGE_BYTES;
        match self.view_of(offset) {
            Some(view) => {
                // SAFETY: tables lie in the regions' metadata, which the file always has; pages
                // change only in an apply, by this engine.
                let page = unsafe { view.page(offset) };
                line.copy_from_slice(&page[index * LINE_BYTES..(index + 1) * LINE_BYTES]);
            }
            None => {
                self.object.read_at(&mut line, offset + (index * LINE_BYTES) as u64)?;
            }
        }
        Ok(line)
    }

    /// Page 0 in memory; for a guest, the copy made when the commit began.
    pub(super) fn page_zero(&self) -> &Page {
        match &self.page_zero_copied {
            Some(copied) => copied,
            // SAFETY: the first span begins with page 0 and is mapped; writers are stopped.
            None => unsafe { page_at(self.spans[0].address) },
        }
    }

    /// Copies a guest's page 0 at the beginning of a commit; only the copy is used from then on.
    pub(super) fn copy_page_zero(&mut self) {
        if self.writer_kind == WriterKind::Guest {
            let mut page = Box::new([0; PAGE_BYTES as usize]);
            // SAFETY: the first span begins with page 0 and is mapped.
            unsafe { copy_page(self.spans[0].address, &mut page) };
            self.page_zero_copied = Some(page);
        }
    }

    /// Seals page 0, in memory as well.
    pub(super) fn seal_page_zero(&mut self, seal: impl FnOnce(u64, &mut Page)) {
        let (sequence, address) = (self.sequence() + 1, self.spans[0].address);
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
    /// `address` begins a mapped page of one of the engine's spans.
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
    pub(super) fn changes_of_page_zero(&self) -> Result<u64> {
        if let Some(view) = self.view_of(0) {
            // SAFETY: the file has its first page. Its bytes change only in an apply by this
            // engine, and when the log's flag is switched, which does not happen now.
            let stored = unsafe { view.page(0) };
            return Ok(self.overlay.changed_lines(0, self.page_zero(), stored));
        }
        let mut stored = [0; PAGE_BYTES as usize];
        self.read_stored(0, &mut stored)?;
        Ok(self.overlay.changed_lines(0, self.page_zero(), &stored))
    }

    pub(super) fn page_zero_changed(&self) -> Result<bool> {
        Ok(self.changes_of_page_zero()? != 0)
    }

    /// Reads a page of the file.
    pub(super) fn read_stored(&self, number: u64, page: &mut Page) -> Result<()> {
        let got = self.object.read_at(page, number * PAGE_BYTES)?;
        page[got..].fill(0);
        Ok(())
    }

    /// Restores pages to the last commit.
    pub(super) fn restore(&mut self, runs: &[Run]) -> Result<()> {
        self.drop_runs(runs)?;
        for run in runs {
            self.lay_overlay_over(run.span, run.address, run.length);
        }
        Ok(())
    }

    /// Lays the overlay's lines over the private pages, for a writer that could not apply them.
    pub(super) fn lay_overlay_over_private_pages(&mut self) -> Result<()> {
        if self.overlay.is_empty() {
            return Ok(());
        }
        for index in 0..self.spans.len() {
            let (address, length) = (self.spans[index].address, self.spans[index].length);
            self.lay_overlay_over(index, address, length);
        }
        Ok(())
    }

    fn lay_overlay_over(&self, span: usize, address: u64, length: u64) {
        let span = &self.spans[span];
        let first = (span.file_offset + (address - span.address)) / PAGE_BYTES;
        let pages = length / PAGE_BYTES;
        let numbers = if pages <= 64 {
            (first..first + pages).filter(|n| self.overlay.lines(*n).is_some()).collect()
        } else {
            let mut numbers = self.overlay.page_numbers();
            numbers.retain(|n| (first..first + pages).contains(n));
            numbers
        };
        for number in numbers {
            let Some((mask, lines)) = self.overlay.lines(number) else { continue };
            if self.tables.is_table_page(number) {
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

    /// Like [`drop_runs`](Engine::drop_runs), for single pages, ascending.
    pub(super) fn drop_pages(&self, addresses: &[u64]) -> Result<()> {
        let mut runs = Vec::new();
        for run in addresses.chunk_by(|a, b| a + PAGE_BYTES == *b) {
            let span = self
                .spans
                .iter()
                .position(|s| run[0] >= s.address && run[0] - s.address < s.length);
            if let Some(span) = span {
                let length = run.len() as u64 * PAGE_BYTES;
                runs.push(Run { span, address: run[0], length });
            }
        }
        self.drop_runs(&runs)
    }

    /// Creates missing views, so that every span has one. Not for guests: if another process
    /// truncates their file, reading through a view would kill the host, while a read call only
    /// fails.
    fn create_views(&mut self) -> Result<()> {
        if self.pending.is_empty() || self.writer_kind == WriterKind::Guest {
            return Ok(());
        }
        for span in &self.spans {
            let needed = span.file_offset + span.length - PAGE_BYTES;
            if !self.views.iter().any(|v| v.contains(span.file_offset) && v.contains(needed)) {
                // The view covers the region's whole capacity, into which the file may grow.
                let capacity = span.mapping.length() - (span.address - span.mapping.base());
                self.views.push(View::new(&*self.object, span.file_offset, capacity)?);
            }
        }
        Ok(())
    }

    fn view_of(&self, file_offset: u64) -> Option<&View> {
        self.views.iter().find(|view| view.contains(file_offset))
    }
}

/// Returns the ranges of a file between two offsets that may hold anything but zeros. Finds all
/// ranges before any page is read: reading triggers read-ahead, and the pages that were read then
/// count as data.
fn data_ranges(object: &dyn File, from: u64, to: u64) -> Result<Vec<(u64, u64)>> {
    let mut ranges = Vec::new();
    let mut at = from;
    while let Some((start, stop)) = object.next_data(at)?.filter(|&(start, _)| start < to) {
        let start = start.max(at);
        at = stop.max(start + PAGE_BYTES);
        ranges.push((start, at.min(to)));
    }
    Ok(ranges)
}

/// # Safety
/// `address` begins a mapped page that is not written to while the reference lives.
unsafe fn page_at<'a>(address: u64) -> &'a Page {
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
/// Reads and copies nothing: some 20 us for a catalog of a few objects.
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
