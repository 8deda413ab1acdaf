//! What this machine has for lanes: its cores, control groups and interrupts; and what of a lane can be had, and why the rest cannot.
//!
//! Only looks: what `check` tries is undone by the end of the thread that tried it. All that is read comes from below [`Roots`], and any of
//! it may be missing.

mod bound;
mod check;
mod choose;
mod cpus;
mod disks;
mod groups;
mod interrupts;
mod list;
pub(crate) mod mounts;
mod refusal;
pub(crate) mod roots;

use std::path::PathBuf;

use serde::Serialize;

pub use bound::BoundThread;
pub(crate) use check::why_refused;
pub use check::{Statement, Subject, can_lend_with_fifo, check};
pub use choose::ChosenCore;
pub use cpus::Cpus;
pub use groups::{Group, Groups};
pub use interrupts::Interrupt;
pub use list::CpuList;
pub use refusal::CoreRefusal;
pub use roots::Roots;

use crate::Result;

/// What was there when it was looked at.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Machine {
    /// Where all of it was read.
    #[serde(skip)]
    pub roots: Roots,
    /// The cores.
    pub cpus: Cpus,
    /// The control groups of this process.
    pub groups: Groups,
    /// What the cpuset of this process leaves it, with the file that says so; none without cpusets.
    pub cpuset: Option<(PathBuf, CpuList)>,
    /// The interrupts of devices.
    pub interrupts: Vec<Interrupt>,
    /// The real-time programs that are bound to a core each.
    pub bound: Vec<BoundThread>,
}

impl Machine {
    /// Looks at this machine. Cost: some small reads of `/proc` and `/sys`, three for each interrupt, some for each disk, and one for each thread of a
    /// program.
    ///
    /// # Errors
    ///
    /// Only if nothing tells which cores there are.
    ///
    /// ```
    /// use evermap_lane::machine::Machine;
    /// let machine = Machine::look()?;
    /// assert!(!machine.cpus.online.is_empty());
    /// # Ok::<(), evermap_lane::Error>(())
    /// ```
    pub fn look() -> Result<Self> {
        Self::look_in(&Roots::default())
    }

    /// Looks at the machine that these directories tell of.
    ///
    /// # Errors
    ///
    /// Only if nothing tells which cores there are.
    pub fn look_in(roots: &Roots) -> Result<Self> {
        let groups = Groups::look_in(roots);
        Ok(Machine {
            cpus: Cpus::look_in(roots)?,
            cpuset: groups.cpuset(),
            groups,
            interrupts: interrupts::look_in(roots),
            bound: bound::look_in(roots),
            roots: roots.clone(),
        })
    }
}
