//! What this machine has for lanes: its cores, control groups and interrupts; and what of a lane can be had, and why the rest cannot.
//!
//! Only looks: what `check` tries is undone by the end of the thread that tried it. All that is read comes from below [`Roots`], and any of
//! it may be missing.

mod choose;
mod cpus;
mod disks;
mod groups;
mod interrupts;
mod list;
pub(crate) mod mounts;
pub(crate) mod roots;

use serde::Serialize;

pub use choose::ChosenCore;
pub use cpus::Cpus;
pub use groups::{Group, Groups};
pub use interrupts::Interrupt;
pub use list::CpuList;
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
    /// The interrupts of devices.
    pub interrupts: Vec<Interrupt>,
}

impl Machine {
    /// Looks at this machine. Cost: some small reads of `/proc` and `/sys`, three for each interrupt and some for each disk.
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
        Ok(Machine {
            cpus: Cpus::look_in(roots)?,
            groups: Groups::look_in(roots),
            interrupts: interrupts::look_in(roots),
            roots: roots.clone(),
        })
    }
}
