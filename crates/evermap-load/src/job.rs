//! Input of every load method: the source, the part to load, and where its data is.

use std::sync::Arc;

use evermap_observe::Span;

use crate::counters::Counters;
use crate::part::Part;
use crate::source::Source;

/// Input of every method.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) source: Arc<Source>,
    pub(crate) part: Part,
    /// Data extents of the part. All other memory is already zero.
    pub(crate) data: Arc<[Span]>,
    pub(crate) counters: Arc<Counters>,
    /// True if part of the file is cached, so direct reads check where.
    pub(crate) is_partly_cached: bool,
}

impl Job {
    /// Returns true if a range of the file has data.
    pub(crate) fn has_data(&self, offset: u64, bytes: usize) -> bool {
        let end = offset + bytes as u64;
        let after = self.data.partition_point(|span| span.end <= offset);
        self.data.get(after).is_some_and(|span| span.begin < end)
    }
}
