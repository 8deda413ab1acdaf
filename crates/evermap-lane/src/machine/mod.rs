//! Description of this machine for lanes: cores, control groups and interrupts; and checks of what
//! a lane can use here, with the cause where it cannot.
//!
//! This module changes nothing: effects of a `check` end with the thread that tried it. All data is
//! read below [`Roots`], and any of it may be missing.

mod bound;
mod check;
mod choose;
mod cpus;
mod detect;
mod disks;
mod groups;
mod interrupts;
pub(crate) mod roots;

pub use crate::cpu_list::CpuList;
pub use crate::refusal::CoreRefusal;
pub use bound::BoundThread;
pub(crate) use check::why_refused;
pub use check::{CheckResult, CheckTargets, can_lend_with_fifo, check};
pub use choose::ChosenCore;
pub use cpus::Cpus;
pub use detect::Machine;
pub use groups::{Group, Groups};
pub use interrupts::Interrupt;
pub use roots::Roots;
