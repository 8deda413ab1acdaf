//! System calls that a lane needs and the libraries lack, one call or structure a file.
//!
//! `unsafe` code stays here, and in `reads`, which guarantees to [`mirror`] and [`mapping`] that no
//! other writer touches their memory.

pub(crate) mod generation;
pub(crate) mod lease;
pub(crate) mod lock;
pub(crate) mod mapping;
pub(crate) mod memory;
pub(crate) mod mirror;
pub(crate) mod namespace;
pub(crate) mod probe;
pub(crate) mod ring;
pub(crate) mod scheduler;
pub(crate) mod signals;
pub(crate) mod spawn;
pub(crate) mod stack;
pub(crate) mod time;
pub(crate) mod wait;

/// Page size in bytes.
pub(crate) fn page_bytes() -> usize {
    rustix::param::page_size()
}

/// Rounds up to whole pages. Returns `None` on overflow.
pub(crate) fn whole_pages(bytes: usize) -> Option<usize> {
    bytes.max(1).checked_next_multiple_of(page_bytes())
}
