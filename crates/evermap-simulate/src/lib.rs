//! Predicts the effect of a core, a tier and nonblocking I/O on a program with deadlines. The
//! simulated devices need not exist.
//!
//! The result depends only on a [`Profile`], a [`Workload`] and a seed. The simulator uses no files
//! and no clock, and computes the same bytes on every machine with any number of threads. A profile
//! is a text file in which each value has a source. Two are built in: one fitted to a published
//! study, one measured. [`Scenario`] simulates one case, [`Sweep`] varies parameters, [`reproduce`]
//! compares the model with the study's numbers and draws its figures, and [`Fit`] searches for
//! parameters that meet targets. Section 9 of `docs/lane.md` documents the model, its parameters
//! and its limits.

mod axis;
mod cache;
mod device;
mod error;
mod fit;
mod measure;
mod mode;
mod model;
mod parallel;
mod parameters;
mod plan;
mod profile;
mod random;
mod reproduce;
mod scenario;
mod spread;
mod sweep;
mod targets;
mod traced;
mod workload;

pub use axis::Axis;
pub use device::Device;
pub use error::Error;
pub use fit::{Fit, Fitted, FittedParameter, Residual};
pub use measure::Measure;
pub use mode::Mode;
pub use model::{Frame, Run, Summary};
pub use profile::{PROFILES, Parameter, Profile};
pub use reproduce::{Reproduction, Row, reproduce};
pub use scenario::Scenario;
pub use sweep::{Sweep, SweepRow};
pub use targets::{FreeParameter, Role, Target, Targets};
pub use traced::Traced;
pub use workload::Workload;

/// Compiles the example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
