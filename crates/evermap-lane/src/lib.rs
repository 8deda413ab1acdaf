//! Programs with deadlines that meet them, on an ordinary Linux.
//!
//! A program that has something to do 24, 60 or 1,000 times a second misses its deadlines for two reasons: others run when it
//! should, and the disk answers when it likes. This crate gives it a **lane**: a core that is its own whenever it wants to run, its data on
//! a **tier** that never makes it wait, and I/O that doesn't block. What is global is journalled first and undone, whoever dies. The
//! **simulator** says beforehand what each of these would bring, on devices one does not have.
//!
//! `docs/lane.md` is the contract: what a lane does, what it needs, what it costs, what it undoes.

mod api;
pub mod bench;
mod counters;
mod error;
pub mod guard;
mod hold;
pub mod machine;
pub mod observe;
mod period;
#[cfg(feature = "plots")]
pub mod plot;
mod policy;
mod process;
mod quantiles;
mod random;
mod reads;
mod report;
pub mod run;
#[cfg(feature = "simulator")]
pub mod simulate;
mod sys;
pub mod tier;
pub mod trace;
mod workqueues;

pub use api::{Access, File, Frame, Lane};
pub use error::{Error, Result};
pub use hold::HoldRefusal;
pub use period::Period;
pub use policy::{
    App, Core, Guard, Io, IoMode, Placement, Policy, Rate, Scheduler, Share, Threads, Tier,
    Workqueues,
};
pub use quantiles::Quantiles;
pub use reads::{Note, Reads};
pub use report::{Cause, Demotion, Report, Timed};

/// The example in the README is compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
