//! Splits large page-cache folios that are written to repeatedly.
//!
//! Folios of 2 MiB are good for reading, and bulk builds create them. Writing single pages into
//! them is slow: see [`View::split_folio`]. So an apply counts its writes to each 2 MiB of the file
//! and splits the folios that get more than a few pages. This is an optimization only: splitting
//! may fail without harm.

use std::collections::HashMap;

use crate::address::View;
use crate::format::PAGE_BYTES;

/// Bytes of the largest folio.
const FOLIO_BYTES: u64 = 2 << 20;
/// Pages written to a folio before it is worth splitting: a write costs 30 us, splitting 100.
const PAGES_BEFORE_SPLIT: u32 = 3;

/// Number of pages written in this session, by the number of their 2 MiB range.
#[derive(Debug, Default)]
pub(super) struct Folios {
    written: HashMap<u64, u32>,
}

impl Folios {
    /// Splits the folios that have had enough writes. `pages` are about to be written, ascending.
    pub(super) fn prepare(&mut self, pages: &[u64], views: &[View]) {
        let folio_of = |page: &u64| page * PAGE_BYTES / FOLIO_BYTES;
        for of_folio in pages.chunk_by(|a, b| folio_of(a) == folio_of(b)) {
            let written = self.written.entry(folio_of(&of_folio[0])).or_default();
            let before = *written;
            *written = written.saturating_add(of_folio.len() as u32);
            if before > PAGES_BEFORE_SPLIT || *written <= PAGES_BEFORE_SPLIT {
                continue;
            }
            let offset = of_folio[0] * PAGE_BYTES;
            if let Some(view) = views.iter().find(|view| view.contains(offset)) {
                // SAFETY: only committed pages are applied, and the file has them.
                unsafe { view.split_folio(offset) };
            }
        }
    }
}
