//! Copies bytes by the fastest mechanism the Linux kernel offers.
//!
//! A file can be copied by `read` and `write`, by `write` from a mapping, by `sendfile`, by
//! `splice` through one or more pipes, by `copy_file_range`, by sharing extents, or by direct I/O
//! through io_uring. Each is fastest in some case and slow in others. This crate implements all of
//! them as *engines* behind one trait. It picks an engine by measured cost and continues with the
//! next one where a file system refuses. Holes and attributes are preserved, and the target's name
//! appears only when the copy is complete.
//!
//! `docs/transfer.md` is the specification: the cost of each engine, the choice of engine, and the
//! guarantees.

mod clean;
mod copy;
mod descriptors;
mod drive;
mod end;
pub mod engines;
mod error;
mod file;
mod measure;
mod meter;
pub mod net;
mod policy;
mod report;
mod segments;
mod space;
mod span;
mod sys;
mod tally;
pub mod tree;

pub use clean::{Cleaned, clean};
pub use copy::{Copy, Follow, Progress};
pub use descriptors::Move;
pub use end::{End, Ends, Kind};
pub use error::{Error, IncompleteTree, Result, Side};
pub use evermap_observe::{DeviceRates, Residency, Usage, device_rates, residency};
pub use file::{Preserve, SharedLinks, temporary_name};
pub use measure::{Measure, Measurement};
pub use meter::Meter;
pub use policy::{Durability, Reflink};
pub use report::{EngineUse, NotKept, NotUsed, Report, TreeSummary};
pub use span::{Span, Work};
pub use sys::{cancelled_by_signals, errors_for_size_limits};
