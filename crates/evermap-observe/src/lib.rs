//! Looking at files, devices and memory without touching them.
//!
//! Whoever moves or loads many bytes decides by what is there: what of a file is cached, where its holes are, how fast its device
//! is, how much memory may be filled. This crate asks the kernel for that. What it hears is a hint, which may be over when it is
//! heard: nobody's correctness may rest on it.
//!
//! Nothing is changed, with two exceptions that say so: measuring a device ([`device_rates`]) writes a file without a name, and
//! what was measured is kept in the user's cache directory. It depends on no other crate of the project, so that every one may use it.

mod device;
mod direct;
mod extents;
mod file_system;
mod kept;
mod memory;
mod residency;
mod span;
mod sys;
mod usage;

pub use device::{DeviceRates, KeptDeviceRates, device_rates, keep_read_rate, read_rate};
pub use direct::{DirectAlignment, direct_alignment};
pub use extents::extents;
pub use file_system::FileSystem;
pub use kept::KeptLines;
pub use memory::{HugePageSupply, LimitedBy, Memory, available_bytes, huge_page_supply, memory};
pub use residency::{Residency, residency, residency_of};
pub use span::Span;
pub use usage::{Moment, Usage, processor_time};
