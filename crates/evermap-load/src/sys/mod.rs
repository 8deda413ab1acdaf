//! What the kernel can do for a load, one call or structure a file. `unsafe` is here and in `region`.

pub(crate) mod advice;
pub(crate) mod at_fork;
pub(crate) mod clone;
pub(crate) mod pages;
pub(crate) mod read;
pub(crate) mod ring;
pub(crate) mod thread;
pub(crate) mod userfault;

/// Bytes of a huge page, and of a window of an image.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Bytes of a page.
pub(crate) fn page_bytes() -> usize {
    rustix::param::page_size()
}
