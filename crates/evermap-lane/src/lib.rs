//! Lets programs with deadlines meet them on an ordinary Linux.
//!
//! A program that has work to do 24, 60 or 1,000 times a second misses deadlines for two reasons:
//! other programs occupy the core when it should run, and the disk answers late. This crate gives
//! the program a **lane**: a core that it gets whenever it wants to run, its data on a fast
//! **tier**, and I/O that does not block. Every change to global state is journalled first and
//! undone, even if any of the processes is killed.
//!
//! `docs/lane.md` is the contract: what a lane does, needs, costs and undoes.

mod api;
mod applied;
pub mod bench;
mod counters;
mod cpu_list;
mod error;
pub mod guard;
mod hold;
pub mod machine;
pub mod observe;
mod policy;
mod process;
mod reads;
mod refusal;
mod report;
pub mod run;
mod sys;
pub mod tier;
mod workqueues;

pub use api::{Access, File, Frame, Lane};
pub use applied::Applied;
pub use error::{Error, Result};
pub use evermap_trace::{Period, Quantiles};
pub use policy::{
    App, Core, Guard, Io, IoMode, Placement, Policy, Rate, Scheduler, Share, Threads, Tier,
    Workqueues,
};
pub use reads::{Note, Reads};
pub use refusal::HoldRefusal;
pub use report::{Cause, Demotion, FrameTimes, Report};

/// Compiles the example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
