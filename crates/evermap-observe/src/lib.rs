//! Queries files, devices and memory without changing them.
//!
//! Programs that copy or load many bytes decide by the state of the machine: cached bytes, holes,
//! device rates, available memory. This crate asks the kernel for them. Every answer is a hint that
//! can be out of date at once, so correctness must not depend on it.
//!
//! Two functions write: [`device_rates`] measures a device with an unnamed temporary file, and
//! measurements are cached in the user's cache directory. [`Quantiles`] summarise measurements. The
//! crate depends on no other crate of the project.

mod device;
mod direct;
mod extents;
mod file_system;
mod memory;
pub mod proc;
mod quantiles;
mod residency;
mod span;
mod state_file;
mod sys;
mod usage;

pub use device::{DeviceRateCache, DeviceRates, device_rates, read_rate, store_read_rate};
pub use direct::{DirectAlignment, direct_alignment};
pub use extents::extents;
pub use file_system::FileSystem;
pub use memory::{HugePageSupply, LimitedBy, Memory, available_bytes, huge_page_supply, memory};
pub use quantiles::{Quantiles, quantile};
pub use residency::{Residency, residency, residency_of};
pub use span::Span;
pub use state_file::StateFile;
pub use usage::{Moment, Usage, processor_time};
