//! Kernel interfaces without a safe call in `rustix`: mappings, memory for rings, shared extents,
//! signals.
//!
//! Only this module and the ring (`engines::ring::queue`) contain `unsafe`.

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
