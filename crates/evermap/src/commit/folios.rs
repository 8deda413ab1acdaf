//! The cure for large page-cache folios: those that are written to again and again are split.
//!
//! Folios of 2 MiB are good for reading, and they are what bulk builds leave behind. Writing single
//! pages into them is not: see [`View::split_folio`]. So an apply counts what it writes to each
//! 2 MiB of the file, and has those split that get more than a few pages.

use std::collections::HashMap;

use crate::address::View;
use crate::format::PAGE_BYTES;

/// Bytes of the largest folio.
const FOLIO_BYTES: u64 = 2 << 20;
/// Pages written to a folio before it is worth splitting: a write costs 30 us, splitting 100.
const PAGES_BEFORE_SPLIT: u32 = 3;

/// Pages written in this session by the number of the 2 MiB they are in.
#[derive(Debug, Default)]
pub(super) struct Folios {
    written: HashMap<u64, u32>,
}

impl Folios {
    /// Splits what these pages (ascending) are going to be written to once too often.
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
                // SAFETY: only pages that were committed are applied: the file has them.
                unsafe { view.split_folio(offset) };
            }
        }
    }
}
