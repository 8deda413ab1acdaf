//! What the crate asks of the kernel and `rustix` has no safe call for: mappings, memory for rings, shared extents, and
//! signals.
//!
//! `unsafe` is here and in the ring (`engines::ring::queue`), nowhere else.

mod clone;
mod close;
mod mapping;
mod memory;
pub(crate) mod queue;
mod signals;
pub(crate) mod write_signals;

pub(crate) use clone::clone_range;
pub(crate) use close::close;
pub(crate) use mapping::{Mapping, page_bytes};
pub(crate) use memory::Memory;
pub use signals::{cancelled_by_signals, errors_for_size_limits};
