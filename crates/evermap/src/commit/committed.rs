//! The last commit of an object: the pages of its file, with the overlay's lines over them.
//!
//! [`Committed`] owns the current object file, its read-only views, the overlay and the places of
//! the checksum tables. Private pages are compared with it and restored from it. Committed pages of
//! the file change in [`Committed::write_overlay`], whose caller has made sure that the log has the
//! same lines durably and that no reader has an older commit mapped. The engine also switches the
//! log's flag in page 0, punches holes, and writes lines again that another process applied.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};

use super::checksums::{self, EntryPlace, TableLine, Tables};
use super::folios::Folios;
use super::overlay::Overlay;
use super::record::{Page, RecordBuilder};
use super::recovery::write_page_overlay;
use super::target::{MappedFile, Span};
use crate::address::View;
use crate::error::{Error, Result};
use crate::format::{CHECKSUM_UNKNOWN, LINE_BYTES, PAGE_BYTES, RegionRecord};
use crate::storage::{File, copy_contents};

/// The last commit, as the file and the overlay have it together.
#[derive(Debug)]
pub(super) struct Committed {
    /// The current object file.
    object: Arc<dyn File>,
    /// Shared handle of the same file, for threads that grow the object.
    mapped: MappedFile,
    /// Read-only views of the private parts of the file, as they are in the page cache.
    views: Vec<View>,
    tables: Tables,
    overlay: Overlay,
    /// Bytes of the file.
    file_length: u64,
    folios: Folios,
    /// Incremented before and after each apply: odd while the file's pages change.
    applies: Arc<AtomicU64>,
}

impl Committed {
    pub(super) fn new(
        mapped: MappedFile,
        overlay: Overlay,
        regions: &[RegionRecord],
        file_length: u64,
    ) -> Committed {
        let object = Arc::clone(&lock(&mapped));
        Committed {
            object,
            mapped,
            views: Vec::new(),
            tables: Tables::of(regions),
            overlay,
            file_length,
            folios: Folios::default(),
            applies: Arc::default(),
        }
    }

    pub(super) fn object(&self) -> &Arc<dyn File> {
        &self.object
    }

    pub(super) fn overlay(&self) -> &Overlay {
        &self.overlay
    }

    pub(super) fn file_length(&self) -> u64 {
        self.file_length
    }

    pub(super) fn applies(&self) -> &Arc<AtomicU64> {
        &self.applies
    }

    /// Notes the regions that the next commit will have. Their tables get its checksums.
    pub(super) fn set_regions(&mut self, regions: &[RegionRecord]) {
        self.tables = Tables::of(regions);
    }

    /// Adds changed lines of a page: its content begins `at` bytes into the record.
    pub(super) fn add(&mut self, page: u64, mask: u64, record: &Arc<Vec<u8>>, at: usize) {
        self.overlay.add_shared(page, mask, record, at);
    }

    pub(super) fn set_file_length(&mut self, file_length: u64) {
        self.file_length = file_length;
    }

    /// Calls `map` to change mappings of the file. A fork waits for it. A fork that has waited too
    /// long leaves the mappings out of the child.
    pub(super) fn while_mapping<R>(&self, map: impl FnOnce() -> R) -> R {
        let _mapped = lock(&self.mapped);
        map()
    }

    /// Goes on with another file, which holds the last commit without an overlay. `map` maps it.
    pub(super) fn switch_to(
        &mut self,
        object: Arc<dyn File>,
        map: impl FnOnce(&dyn File) -> Result<()>,
    ) -> Result<()> {
        let mut mapped = lock(&self.mapped);
        map(&*object)?;
        *mapped = Arc::clone(&object);
        drop(mapped);
        self.views.clear();
        self.overlay.clear();
        self.object = object;
        Ok(())
    }

    /// Writes the overlay's lines to the file, without a flush. They stay in the overlay.
    pub(super) fn write_overlay(&mut self) -> Result<()> {
        if !self.object.is_direct() {
            self.folios.prepare(&self.overlay.page_numbers(), &self.views);
        }
        self.applies.fetch_add(1, Ordering::SeqCst);
        let written = write_page_overlay(&self.overlay, &*self.object);
        self.applies.fetch_add(1, Ordering::SeqCst);
        written
    }

    /// Notes that the file has all lines of the overlay.
    pub(super) fn clear_overlay(&mut self) {
        self.overlay.clear();
    }

    /// Copies the last commit into another file.
    pub(super) fn copy_to(&self, copy: &dyn File) -> Result<()> {
        copy.advise_random()?;
        // Only the committed length is copied. Later growth must reserve space for the new file
        // alone, not blocks shared with the old one.
        copy_contents(&*self.object, copy, self.file_length)?;
        write_page_overlay(&self.overlay, copy)
    }

    /// Creates the view of a span unless there is one.
    pub(super) fn ensure_view(&mut self, span: &Span) -> Result<()> {
        let last = span.file_offset + span.length - PAGE_BYTES;
        if !self.views.iter().any(|v| v.contains(span.file_offset) && v.contains(last)) {
            // The view covers the region's whole capacity, into which the file may grow.
            let capacity = span.mapping.length() - (span.address - span.mapping.base());
            self.views.push(View::new(&*self.object, span.file_offset, capacity)?);
        }
        Ok(())
    }

    fn view_of(&self, file_offset: u64) -> Option<&View> {
        self.views.iter().find(|view| view.contains(file_offset))
    }

    /// Returns a page of the file, without the overlay: from the view of its span, or read into
    /// `copy`. The page is within the committed length.
    pub(super) fn stored<'a>(&'a self, number: u64, copy: &'a mut Page) -> Result<&'a Page> {
        let offset = number * PAGE_BYTES;
        match self.view_of(offset) {
            // SAFETY: the file has the page. Its bytes change in `write_overlay`, which needs
            // `self` exclusively. The engine's other writes (the log's flag in page 0, holes, and
            // lines that another process applied) do not happen during a comparison.
            Some(view) => Ok(unsafe { view.page(offset) }),
            None => {
                self.read_stored(number, copy)?;
                Ok(copy)
            }
        }
    }

    /// Reads a page of the file.
    pub(super) fn read_stored(&self, number: u64, page: &mut Page) -> Result<()> {
        let got = self.object.read_at(page, number * PAGE_BYTES)?;
        page[got..].fill(0);
        Ok(())
    }

    /// Reads a page of the last commit.
    pub(super) fn read(&self, number: u64, page: &mut Page) -> Result<()> {
        self.read_stored(number, page)?;
        self.overlay.patch(number, page);
        Ok(())
    }

    /// Reads a line of the last commit.
    fn line(&self, number: u64, index: usize) -> Result<TableLine> {
        if let Some(line) = self.overlay.line(number, index) {
            return Ok(*line);
        }
        let mut line = [0; LINE_BYTES];
        let offset = number * PAGE_BYTES;
        match self.view_of(offset) {
            Some(view) => {
                // SAFETY: as in `stored`. Tables lie in the regions' metadata, which the file
                // always has.
                let page = unsafe { view.page(offset) };
                line.copy_from_slice(&page[index * LINE_BYTES..(index + 1) * LINE_BYTES]);
            }
            None => {
                self.object.read_at(&mut line, offset + (index * LINE_BYTES) as u64)?;
            }
        }
        Ok(line)
    }

    pub(super) fn has_tables(&self) -> bool {
        !self.tables.is_empty()
    }

    pub(super) fn is_table_page(&self, number: u64) -> bool {
        self.tables.is_table_page(number)
    }

    /// Returns true if the page's contents are unspecified in the last commit.
    pub(super) fn has_unknown_checksum(&self, number: u64) -> Result<bool> {
        let Some(place) = self.tables.place(number) else { return Ok(false) };
        let line = self.line(place.table_page, place.line)?;
        Ok(checksums::entry_at(&line, place.index) == CHECKSUM_UNKNOWN)
    }

    /// Adds the checksums of untouched pages between two offsets of the file. Earlier contents of
    /// the region may have left entries in the table.
    pub(super) fn add_zero_entries(
        &self,
        from: u64,
        to: u64,
        entries: &mut Vec<(u64, u32)>,
    ) -> Result<()> {
        let (mut page, end) = (from / PAGE_BYTES, to / PAGE_BYTES);
        let mut table = [0; PAGE_BYTES as usize];
        while page < end {
            let Some(place) = self.tables.place(page) else {
                page += 1;
                continue;
            };
            let next = (page + place.left_in_page()).min(end);
            self.read(place.table_page, &mut table)?;
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
                let committed = self.line(number, index)?;
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
                debug_assert!(checksums::is_sealed(&now), "the next commit verifies the line");
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
}

fn lock(mapped: &MappedFile) -> MutexGuard<'_, Arc<dyn File>> {
    mapped.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the ranges of a file between two offsets that may hold anything but zeros. Finds all
/// ranges before any page is read: reading triggers read-ahead, and the pages that were read then
/// count as data.
pub(super) fn data_ranges(object: &dyn File, from: u64, to: u64) -> Result<Vec<(u64, u64)>> {
    let mut ranges = Vec::new();
    let mut at = from;
    while let Some((start, stop)) = object.next_data(at)?.filter(|&(start, _)| start < to) {
        let start = start.max(at);
        at = stop.max(start + PAGE_BYTES);
        ranges.push((start, at.min(to)));
    }
    Ok(ranges)
}
