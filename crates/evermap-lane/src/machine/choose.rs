//! Chooses the core of a lane.
//!
//! A core that completes disk requests is a bad choice: a real-time program that polls there keeps
//! the kernel from completing the requests that it polls for. Each reason is given as a sentence,
//! for the report and for `check`.

use serde::Serialize;

use super::{CoreRefusal, CpuList, Machine};
use crate::policy::Core;
use crate::{Error, Result};

/// Core chosen for a lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ChosenCore {
    /// Number of the core.
    pub core: u32,
    /// Reasons for this core, in sentences.
    pub why: Vec<String>,
}

/// Disadvantages of a core; the smallest value is the best core. The number is compared last and
/// makes the choice deterministic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    serves_disks: bool,
    disk_interrupts: u64,
    has_real_time: bool,
    is_shared: bool,
    interrupts: u64,
    core: u32,
}

impl Machine {
    /// Chooses the core for a policy. `taken` are the cores of other lanes. Reads nothing.
    ///
    /// # Errors
    ///
    /// [`Error::CoreRefused`] if the named core cannot be used; [`Error::NoCore`] if none is left.
    pub fn choose_core(&self, wanted: Core, taken: &[u32]) -> Result<ChosenCore> {
        match wanted {
            Core::Number(core) => self.verified(core, taken),
            Core::Auto => self.best(taken),
        }
    }

    /// Returns the cores that a lane may use: online cores that this process may use. Isolated
    /// cores are in no affinity by default, so only the cpuset limits those.
    pub fn usable_cores(&self) -> CpuList {
        let within = self.cpuset.as_ref().map(|(_, cores)| cores);
        let asked_for = self
            .cpus
            .isolated
            .iter()
            .filter(|core| within.is_some_and(|within| within.contains(*core)));
        let usable: CpuList = self.cpus.allowed.iter().chain(asked_for).collect();
        usable.and(&self.cpus.online)
    }

    fn verified(&self, core: u32, taken: &[u32]) -> Result<ChosenCore> {
        let refused = |why| Err(Error::CoreRefused { core, why });
        let cpus = &self.cpus;
        if !cpus.possible.contains(core) && !cpus.online.contains(core) {
            return refused(CoreRefusal::Absent { possible: cpus.possible.clone() });
        }
        if !cpus.online.contains(core) {
            return refused(CoreRefusal::Offline { online: cpus.online.clone() });
        }
        if !self.usable_cores().contains(core) {
            return match self.cpuset.clone() {
                Some((file, cores)) if !cores.contains(core) => {
                    refused(CoreRefusal::NotInCpuset { file, cores })
                }
                _ => refused(CoreRefusal::NotInAffinity { allowed: cpus.allowed.clone() }),
            };
        }
        if taken.contains(&core) {
            return refused(CoreRefusal::Taken);
        }
        let mut why = vec![format!("the policy names core {core}")];
        why.extend(self.warning_of_disks(core));
        why.extend(self.bound_to(core).map(|others| format!("{others}, too")));
        Ok(ChosenCore { core, why })
    }

    fn best(&self, taken: &[u32]) -> Result<ChosenCore> {
        let usable = self.usable_cores();
        let free: Vec<Cost> = usable
            .iter()
            .filter(|core| !taken.contains(core))
            .map(|core| self.cost(core))
            .collect();
        let Some(best) = free.iter().min() else {
            return Err(Error::NoCore { usable, taken: taken.iter().copied().collect() });
        };
        let why = self.reasons(best, &free, &usable, taken);
        Ok(ChosenCore { core: best.core, why })
    }

    fn cost(&self, core: u32) -> Cost {
        let serves_disks = !self.disks_served_by(core).is_empty();
        let of_disks =
            self.interrupts.iter().filter(|one| !one.disks.is_empty() && one.is_served_by(core));
        let count = |one: &super::Interrupt| one.served.get(&core).copied().unwrap_or(0);
        Cost {
            serves_disks,
            disk_interrupts: of_disks.map(count).fold(0, u64::saturating_add),
            has_real_time: self.bound_to(core).is_some(),
            is_shared: !self.cpus.isolated.contains(core),
            interrupts: self.interrupts.iter().map(count).fold(0, u64::saturating_add),
            core,
        }
    }

    /// Sentence about real-time programs that are bound to a core.
    fn bound_to(&self, core: u32) -> Option<String> {
        let mut threads = self.bound.iter().filter(|thread| thread.core == core);
        let first = threads.next()?;
        let others = match threads.filter(|thread| thread.process != first.process).count() {
            0 => String::new(),
            _ => " and others".into(),
        };
        let (name, process) = (&first.name, first.process);
        Some(format!(
            "{name} (process {process}){others} with a real-time policy is bound to core {core}"
        ))
    }

    /// Returns the disks whose requests this core completes.
    pub fn disks_served_by(&self, core: u32) -> Vec<&str> {
        let of_core = self.interrupts.iter().filter(|one| one.is_served_by(core));
        let mut disks: Vec<&str> =
            of_core.flat_map(|one| one.disks.iter().map(String::as_str)).collect();
        disks.sort_unstable();
        disks.dedup();
        disks
    }

    fn warning_of_disks(&self, core: u32) -> Option<String> {
        let disks = self.disks_served_by(core);
        (!disks.is_empty()).then(|| {
            format!(
                "core {core} completes the requests of {}: a program that polls there delays the completion of its own",
                disks.join(", ")
            )
        })
    }

    fn reasons(&self, best: &Cost, free: &[Cost], usable: &CpuList, taken: &[u32]) -> Vec<String> {
        let core = best.core;
        let mut why = Vec::new();
        if self.cpus.online.len() == 1 {
            why.push(format!(
                "core {core} is the only core online: the lane shares it with all other programs"
            ));
        } else if usable.len() == 1 {
            why.push(format!(
                "core {core} is the only core of {} that this process may use",
                self.cpus.online
            ));
        }
        let elsewhere: CpuList = taken.iter().copied().collect::<CpuList>().and(usable);
        if !elsewhere.is_empty() {
            why.push(format!("other lanes have core {elsewhere}"));
        }
        let off = self.cpus.possible.without(&self.cpus.online);
        if !off.is_empty() {
            why.push(format!("core {off} {} offline", if off.len() == 1 { "is" } else { "are" }));
        }
        if !best.is_shared {
            why.push(format!("core {core} is isolated: the kernel moves no programs there"));
        }
        why.extend(self.reasons_of_disks(best, free));
        why.extend(self.reason_of_others(best, free));
        let is_equal = |other: &&Cost| {
            !other.serves_disks
                && other.has_real_time == best.has_real_time
                && other.is_shared == best.is_shared
                && other.core != core
        };
        if !best.serves_disks && free.iter().any(|other| is_equal(&other)) {
            why.push(format!(
                "of the remaining cores it has served the fewest device interrupts: {}",
                best.interrupts
            ));
        }
        why
    }

    fn reason_of_others(&self, best: &Cost, free: &[Cost]) -> Option<String> {
        if best.has_real_time {
            return self.bound_to(best.core).map(|others| format!("{others}, too"));
        }
        free.iter().filter(|other| !other.serves_disks).find_map(|other| self.bound_to(other.core))
    }

    fn reasons_of_disks(&self, best: &Cost, free: &[Cost]) -> Option<String> {
        let core = best.core;
        if best.serves_disks {
            return match free.len() {
                1 => self.warning_of_disks(core),
                _ => Some(format!(
                    "all cores complete disk requests, and core {core} the fewest: {}",
                    best.disk_interrupts
                )),
            };
        }
        let busy: Vec<u32> =
            free.iter().filter(|other| other.serves_disks).map(|other| other.core).collect();
        let others = match busy.as_slice() {
            [] => String::new(),
            [other] => {
                format!(
                    "; core {other} completes those of {}",
                    self.disks_served_by(*other).join(", ")
                )
            }
            _ => format!("; cores {} do", busy.into_iter().collect::<CpuList>()),
        };
        Some(format!("core {core} completes no disk requests{others}"))
    }
}
