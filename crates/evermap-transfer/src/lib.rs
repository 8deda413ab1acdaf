//! Moves bytes by the cheapest path the Linux kernel has.
//!
//! There are many ways to bring a file's bytes elsewhere: read and write, a mapping that is written,
//! `sendfile`, `splice` through one pipe or several, `copy_file_range`, shared extents, a ring of direct reads
//! and writes. Each wins somewhere and loses elsewhere. This crate has all of them as *engines* behind
//! one trait, knows by measurement which one wins where, falls back from one to the next where a file system
//! refuses, and has the manners of a tool that is trusted with data: holes stay holes, attributes are kept,
//! a copy has its name only when it is complete.
//!
//! `docs/transfer.md` is the contract: what each engine costs, how one is picked, what is promised.

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
mod room;
mod segments;
mod span;
mod sys;
pub mod tree;

pub use clean::{Cleaned, clean};
pub use copy::{Copy, Follow, Progress};
pub use descriptors::Move;
pub use end::{End, Ends, Kind};
pub use error::{Error, Result, Side};
pub use evermap_observe::{DeviceRates, Residency, Usage, device_rates, residency};
pub use file::{Preserve, SharedLinks, temporary_name};
pub use measure::{Cell, Measure};
pub use meter::Meter;
pub use policy::{Durability, Reflink};
pub use report::{EngineUse, NotKept, NotUsed, Report, TreeSummary};
pub use span::{Span, Work};
pub use sys::{cancelled_by_signals, errors_for_size_limits};
