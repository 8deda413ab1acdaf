//! Kernel interfaces for loading, one call or structure per file. Most `unsafe` code is here and in
//! `region`. The methods and images use it to fill and return memory.

pub(crate) mod advice;
pub(crate) mod at_fork;
pub(crate) mod clone;
pub(crate) mod pages;
pub(crate) mod read;
pub(crate) mod ring;
pub(crate) mod thread;
pub(crate) mod userfault;

/// Size of a huge page and of a window.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Returns the page size.
pub(crate) fn page_bytes() -> usize {
    rustix::param::page_size()
}
