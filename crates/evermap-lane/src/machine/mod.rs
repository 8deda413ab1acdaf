//! Describes this machine for lanes: its cores, control groups and interrupts. Checks which of them
//! a lane can use, and gives the cause if it cannot.
//!
//! This module leaves the machine unchanged. `check` tries settings in threads and children that
//! end at once, and removes the files it creates. The description of the machine is read below
//! [`Roots`]. Only the list of online cores is required, and it has several sources.

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
