//! Says beforehand what a core, a tier and I/O without blocking would bring: a program with deadlines, simulated on devices that need not be there.
//!
//! What it says is a function of a [`Profile`], a [`Workload`] and a seed: no files, no clock, and the same bytes on every machine and any number of
//! threads. A profile is text in which each value has a source; two come with the crate, one fitted to the study that this part goes back to, one measured.
//! [`Scenario`] simulates one case, [`Sweep`] goes over parameters, [`reproduce`] draws the study's figures beside its numbers, and [`Fit`] searches
//! parameters for targets. `docs/lane.md`, section 9, has the model, what each parameter means, and what it cannot do.

mod axis;
mod cache;
mod device;
mod error;
mod fit;
mod measure;
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
pub use model::{Frame, Mode, Run, Summary};
pub use profile::{PROFILES, Parameter, Profile};
pub use reproduce::{Reproduction, Row, reproduce};
pub use scenario::Scenario;
pub use sweep::{Sweep, SweepRow};
pub use targets::{Free, Role, Target, Targets};
pub use traced::Traced;
pub use workload::Workload;
