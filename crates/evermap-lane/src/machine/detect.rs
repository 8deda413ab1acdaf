//! Reads the description of a machine.

use std::path::PathBuf;

use serde::Serialize;

use super::CpuList;
use super::bound::{self, BoundThread};
use super::cpus::Cpus;
use super::disks;
use super::groups::Groups;
use super::interrupts::{self, Interrupt};
use super::roots::Roots;
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
        let mut interrupts = interrupts::read_in(roots);
        disks::assign_disks(roots, &mut interrupts);
        Ok(Machine {
            cpus: Cpus::read_in(roots)?,
            cpuset: groups.cpuset(),
            groups,
            interrupts,
            bound: bound::read_in(roots),
            roots: roots.clone(),
        })
    }
}
