//! Traces of reads and writes, converted from other tools to one form.
//!
//! A [`Trace`] is a list of [`Event`]s ordered by time. Each format has its own parser, which reads
//! one line at a time. A parser never panics, never stores more than its [`Options`] allow, and
//! reports what it left out as a [`Warning`]. Only [`record()`] starts programs; everything else
//! reads its input. [`stat`] summarises a trace, by [`Period`]s of the program if it has some, in
//! [`Quantiles`]. Section 10 of `docs/lane.md` documents the units and how they were determined.

mod blkparse;
mod block;
mod collect;
mod error;
mod event;
mod fio;
mod format;
mod json;
mod lines;
mod msr;
mod numbers;
mod parser;
mod perf;
mod period;
mod ranges;
mod read;
mod record;
mod spc;
mod statistics;
mod strace;
mod warning;

pub use evermap_observe::{Quantiles, quantile};

pub use error::{Error, Result};
pub use event::{Event, LENGTH_BYTES_MAX, Operation, Trace};
pub use format::{Format, TimeUnit};
pub use period::Period;
pub use read::Options;
pub use record::{Recorded, Recorder, record};
pub use statistics::{
    FileStatistics, Flushes, Frames, PAGE_BYTES, Pages, Statistics, Transfers, stat,
};
pub use warning::{Problem, Warning};

/// Compiles the example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
