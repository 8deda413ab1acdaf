//! What the kernel can do for a lane and the libraries lack, one call or structure a file. `unsafe` is here, and in `reads` where it promises what
//! [`mirror`] and [`mapping`] ask of whoever uses them: who else writes to that memory.

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

/// Bytes of a page.
pub(crate) fn page_bytes() -> usize {
    rustix::param::page_size()
}

/// As whole pages; none beyond the addresses there are.
pub(crate) fn whole_pages(bytes: usize) -> Option<usize> {
    bytes.max(1).checked_next_multiple_of(page_bytes())
}
