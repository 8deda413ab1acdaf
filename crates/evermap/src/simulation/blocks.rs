//! The pages of a file that have disk space.
//!
//! A hole has no disk space. A write into a hole allocates it, and fails on a full disk.

use std::collections::BTreeSet;

use super::pages::{PAGE, Pages};
use super::random::Random;

/// Numbers of the pages that have disk space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Blocks(BTreeSet<u64>);

/// Returns the pages that a range touches.
fn pages(offset: u64, length: u64) -> std::ops::Range<u64> {
    if length == 0 { 0..0 } else { offset / PAGE..(offset + length).div_ceil(PAGE) }
}

impl Blocks {
    pub(super) fn reserve(&mut self, offset: u64, length: u64) {
        self.0.extend(pages(offset, length));
    }

    /// Pages that are only partly in the range keep their space.
    pub(super) fn free_space(&mut self, offset: u64, length: u64) {
        let gone = offset.div_ceil(PAGE)..(offset + length) / PAGE;
        self.0.retain(|page| !gone.contains(page));
    }

    /// Drops the space after the end of the file.
    pub(super) fn shorten(&mut self, length: u64) {
        self.0.split_off(&length.div_ceil(PAGE));
    }

    /// Returns true if every page of a range has space.
    pub(super) fn has(&self, offset: u64, length: u64) -> bool {
        pages(offset, length).all(|page| self.0.contains(&page))
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.len() as u64 * PAGE
    }

    /// Returns the space after a power failure, which keeps or loses each change independently.
    pub(super) fn after_power_failure(&self, newest: &Blocks, random: &mut Random) -> Blocks {
        let mut kept = self.clone();
        for page in self.0.symmetric_difference(&newest.0) {
            if random.chance(1, 2) && !kept.0.remove(page) {
                kept.0.insert(*page);
            }
        }
        kept
    }

    /// Adjusts the space to a file's contents: pages with contents have space, pages past the end
    /// have none.
    pub(super) fn of_file(mut self, content: &Pages) -> Blocks {
        self.0.extend(content.filled());
        self.shorten(content.length());
        self
    }
}
