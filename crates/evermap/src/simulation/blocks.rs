//! The pages of a file that have disk space.
//!
//! A hole has none. A write into a hole takes space, and fails on a full disk.

use std::collections::BTreeSet;

use super::pages::{PAGE, Pages};
use super::random::Random;

/// Numbers of the pages with space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Blocks(BTreeSet<u64>);

/// Pages that a range touches.
fn pages(offset: u64, length: u64) -> std::ops::Range<u64> {
    if length == 0 { 0..0 } else { offset / PAGE..(offset + length).div_ceil(PAGE) }
}

impl Blocks {
    pub(super) fn reserve(&mut self, offset: u64, length: u64) {
        self.0.extend(pages(offset, length));
    }

    /// Pages that the range has in part keep their space.
    pub(super) fn give_back(&mut self, offset: u64, length: u64) {
        let gone = offset.div_ceil(PAGE)..(offset + length) / PAGE;
        self.0.retain(|page| !gone.contains(page));
    }

    /// The file ends here.
    pub(super) fn shorten(&mut self, length: u64) {
        self.0.split_off(&length.div_ceil(PAGE));
    }

    /// Has every page of a range space?
    pub(super) fn has(&self, offset: u64, length: u64) -> bool {
        pages(offset, length).all(|page| self.0.contains(&page))
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.len() as u64 * PAGE
    }

    /// The space after a power cut, which keeps or loses each change by itself.
    pub(super) fn cut(&self, newest: &Blocks, random: &mut Random) -> Blocks {
        let mut kept = self.clone();
        for page in self.0.symmetric_difference(&newest.0) {
            if random.chance(1, 2) && !kept.0.remove(page) {
                kept.0.insert(*page);
            }
        }
        kept
    }

    /// Fits the space to a file's contents: every page with contents has space, and no page behind the end has.
    pub(super) fn of_file(mut self, content: &Pages) -> Blocks {
        self.0.extend(content.filled());
        self.shorten(content.length());
        self
    }
}
