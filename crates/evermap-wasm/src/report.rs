//! Costs of a run: host calls, commits and mapped bytes.

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

/// Counters of a running instance.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    calls: [u64; 5],
    pub(crate) refused: u64,
    pub(crate) commits: u64,
    pub(crate) mapped_bytes: u64,
    /// Calls of all host functions, including WASI.
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

/// Costs of an instance's run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Calls of host functions by the guest: WASI, Evermap and the embedder's.
    pub host_calls: u64,
    /// Crossings of the sandbox boundary: two for each call in either direction.
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
    /// Calls of other host functions: WASI and the embedder's.
    pub other_calls: u64,
    /// Calls of the five imports that returned an error.
    pub refused_calls: u64,
    /// Commits that wrote changes.
    pub commits: u64,
    /// Bytes of objects that were mapped.
    pub mapped_bytes: u64,
    /// Growths of memories and tables that failed because the budget was used up.
    pub refused_growths: u64,
    /// Time spent in calls of the guest, in sum.
    pub elapsed_ns: u64,
}
