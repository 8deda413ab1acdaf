//! Runs of private pages, and the pages that stay private after their commit.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::overlay::PageHasher;
use crate::format::PAGE_BYTES;

/// A run of pages that may be private.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) span: usize,
    pub(super) address: u64,
    pub(super) length: u64,
}

/// Pages that stay private after their commit, so that storing to them again is cheap.
#[derive(Debug)]
pub(super) struct RetainedPages {
    /// Number of the last commit that had each page, by address.
    pages: HashMap<u64, u64, BuildHasherDefault<PageHasher>>,
    commits: u64,
    latest: usize,
    /// True if pages may be retained. Requires that scans can find later stores to them.
    pub(super) allowed: bool,
}

impl RetainedPages {
    pub(super) fn new(allowed: bool) -> RetainedPages {
        RetainedPages { pages: HashMap::default(), commits: 0, latest: 0, allowed }
    }

    /// Notes the pages of a commit.
    pub(super) fn committed(&mut self, runs: Vec<Run>) {
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
    pub(super) fn keep(&mut self, runs: Vec<Run>) {
        for run in runs {
            for address in (run.address..run.address + run.length).step_by(PAGE_BYTES as usize) {
                self.pages.entry(address).or_insert(self.commits);
            }
        }
    }

    /// Number of commits so far.
    pub(super) fn commits(&self) -> u64 {
        self.commits
    }

    /// Bytes of retained pages, and of those that were in the last commit.
    pub(super) fn bytes(&self) -> (u64, u64) {
        (self.pages.len() as u64 * PAGE_BYTES, self.latest as u64 * PAGE_BYTES)
    }

    /// Removes and returns the pages that were not in the last commit, or all; ascending.
    pub(super) fn take(&mut self, also_latest: bool) -> Vec<u64> {
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
pub(super) fn merge(runs: &mut Vec<Run>) {
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
