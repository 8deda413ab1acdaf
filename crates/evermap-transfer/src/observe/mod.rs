//! Looking without touching: what is cached, what memory there is, what a transfer has cost.

mod extents;
mod memory;
mod residency;
mod usage;

pub(crate) use extents::extents;
pub(crate) use memory::available_bytes;
pub use residency::{Residency, residency};
pub use usage::Usage;
pub(crate) use usage::{Moment, processor_time};
