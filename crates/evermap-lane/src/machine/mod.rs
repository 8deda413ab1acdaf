//! Description of this machine for lanes: cores, control groups and interrupts; and checks of what
//! a lane can use here, with the cause where it cannot.
//!
//! This module changes nothing: effects of a `check` end with the thread that tried it. All data is
//! read below [`Roots`], and any of it may be missing.

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
pub use check::{CheckResult, CheckTargets, can_lend_with_fifo, check};
pub use choose::ChosenCore;
pub use cpus::Cpus;
pub use groups::{Group, Groups};
pub use interrupts::Interrupt;
pub use list::CpuList;
pub use refusal::CoreRefusal;
pub use roots::Roots;

use crate::Result;

/// Description of a machine at one moment.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Machine {
    /// Directories that the description was read from.
    #[serde(skip)]
    pub roots: Roots,
    /// Cores.
    pub cpus: Cpus,
    /// Control groups of this process.
    pub groups: Groups,
    /// Cores that the cpuset of this process allows, with the file that lists them. `None` without
    /// cpusets.
    pub cpuset: Option<(PathBuf, CpuList)>,
    /// Interrupts of devices.
    pub interrupts: Vec<Interrupt>,
    /// Real-time programs that are bound to one core.
    pub bound: Vec<BoundThread>,
}

impl Machine {
    /// Reads the description of this machine. Cost: some small reads of `/proc` and `/sys`, three
    /// for each interrupt, some for each disk, and one for each thread of a program.
    ///
    /// # Errors
    ///
    /// The cores of the machine cannot be determined.
    ///
    /// ```
    /// use evermap_lane::machine::Machine;
    /// let machine = Machine::detect()?;
    /// assert!(!machine.cpus.online.is_empty());
    /// # Ok::<(), evermap_lane::Error>(())
    /// ```
    pub fn detect() -> Result<Self> {
        Self::detect_in(&Roots::default())
    }

    /// Reads the description of the machine below these directories.
    ///
    /// # Errors
    ///
    /// The cores of the machine cannot be determined.
    pub fn detect_in(roots: &Roots) -> Result<Self> {
        let groups = Groups::detect_in(roots);
        Ok(Machine {
            cpus: Cpus::read_in(roots)?,
            cpuset: groups.cpuset(),
            groups,
            interrupts: interrupts::read_in(roots),
            bound: bound::read_in(roots),
            roots: roots.clone(),
        })
    }
}
