//! What a run cost: calls of the host, and what they moved.

use std::time::Duration;

use serde::Serialize;

/// One of the five imports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Import {
    Map,
    Unmap,
    Commit,
    Stat,
    LastFault,
}

/// What is counted while an instance runs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    calls: [u64; 5],
    pub(crate) refused: u64,
    pub(crate) commits: u64,
    pub(crate) mapped_bytes: u64,
    /// Calls of any host function, WASI's among them.
    pub(crate) host_calls: u64,
    /// Calls into the guest.
    pub(crate) guest_calls: u64,
}

impl Counts {
    pub(crate) fn count(&mut self, import: Import) {
        self.calls[import as usize] += 1;
    }

    fn of(&self, import: Import) -> u64 {
        self.calls[import as usize]
    }

    pub(crate) fn report(&self, elapsed: Duration) -> Report {
        Report {
            host_calls: self.host_calls,
            crossings: 2 * (self.host_calls + self.guest_calls),
            map_calls: self.of(Import::Map),
            unmap_calls: self.of(Import::Unmap),
            commit_calls: self.of(Import::Commit),
            stat_calls: self.of(Import::Stat),
            last_fault_calls: self.of(Import::LastFault),
            other_calls: self.host_calls.saturating_sub(self.calls.iter().sum()),
            refused_calls: self.refused,
            commits: self.commits,
            mapped_bytes: self.mapped_bytes,
            refused_growths: 0,
            elapsed_ns: elapsed.as_nanos() as u64,
        }
    }
}

/// What an instance's run cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Calls of host functions by the guest: WASI's and Evermap's.
    pub host_calls: u64,
    /// Ways through the wall: two for each call, in either direction.
    pub crossings: u64,
    /// Calls of `map` among the host calls.
    pub map_calls: u64,
    /// Calls of `unmap`.
    pub unmap_calls: u64,
    /// Calls of `commit`.
    pub commit_calls: u64,
    /// Calls of `stat`.
    pub stat_calls: u64,
    /// Calls of `last_fault`.
    pub last_fault_calls: u64,
    /// Host calls that are none of these five: WASI's, and the embedder's own.
    pub other_calls: u64,
    /// Calls among the five that were refused.
    pub refused_calls: u64,
    /// Commits that had something to write.
    pub commits: u64,
    /// Bytes of objects that were mapped.
    pub mapped_bytes: u64,
    /// Growths of its memories and tables that were refused, because its budget was used up.
    pub refused_growths: u64,
    /// Time from the first instruction to the end.
    pub elapsed_ns: u64,
}
