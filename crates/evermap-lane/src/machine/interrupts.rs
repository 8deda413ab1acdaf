//! Interrupts of devices, the cores that serve them, and the disks that they belong to.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use super::{CpuList, Roots};

/// Interrupt of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Interrupt {
    /// Interrupt number.
    pub number: u32,
    /// Names of its users: `virtio1-req.0`, `nvme0q1`.
    pub names: Vec<String>,
    /// Number of times that each online core has served it since boot.
    pub served: BTreeMap<u32, u64>,
    /// Core that serves it now, if the kernel reports it. More than one for controllers that choose
    /// themselves.
    pub served_by: CpuList,
    /// Disks whose requests it completes: `vda`.
    pub disks: Vec<String>,
}

impl Interrupt {
    /// Returns true if this core serves the interrupt: by its present affinity, or by past counts
    /// if that is unknown.
    pub fn is_served_by(&self, core: u32) -> bool {
        match self.served_by.is_empty() {
            false => self.served_by.contains(core),
            true => self.served.get(&core).is_some_and(|count| *count > 0),
        }
    }
}

/// Reads all interrupts of devices, without their disks. Interrupts of the processors (timers,
/// calls between cores) have no number, and every core has them.
pub(super) fn read_in(roots: &Roots) -> Vec<Interrupt> {
    let text = roots.proc_text("interrupts").unwrap_or_default();
    let mut interrupts = parse(&text);
    for interrupt in &mut interrupts {
        interrupt.served_by = served_by(roots, interrupt.number);
        // In the line, the name of the controller precedes the names of the users, without a
        // reliable separator.
        if let Some(actions) = roots.sys_text(format!("kernel/irq/{}/actions", interrupt.number))
            && !actions.is_empty()
        {
            interrupt.names = names(&actions);
        }
    }
    interrupts
}

/// Core that the interrupt goes to, or else its affinity if that is a single core.
fn served_by(roots: &Roots, number: u32) -> CpuList {
    let list = |name: &str| -> Option<CpuList> {
        let cores: CpuList = roots
            .proc_text(Path::new("irq").join(number.to_string()).join(name))
            .ok()?
            .parse()
            .ok()?;
        (!cores.is_empty()).then_some(cores)
    };
    list("effective_affinity_list")
        .or_else(|| list("smp_affinity_list").filter(|cores| cores.len() == 1))
        .unwrap_or_default()
}

/// Parses `/proc/interrupts`: a line with the online cores, then a line for each interrupt.
fn parse(text: &str) -> Vec<Interrupt> {
    let mut lines = text.lines();
    let number = |name: &str| name.strip_prefix("CPU")?.parse::<u32>().ok();
    let cores: Vec<u32> =
        lines.next().unwrap_or_default().split_ascii_whitespace().filter_map(number).collect();
    lines.filter_map(|line| interrupt(line, &cores)).collect()
}

fn interrupt(line: &str, cores: &[u32]) -> Option<Interrupt> {
    let (label, mut rest) = line.split_once(':')?;
    let number = label.trim().parse().ok()?;
    let mut served = BTreeMap::new();
    for core in cores {
        rest = rest.trim_start();
        let (count, after) = rest.split_once(' ').unwrap_or((rest, ""));
        served.insert(*core, count.parse().ok()?);
        rest = after;
    }
    // `PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0`: the names follow the last two blanks.
    let tail = rest.trim().rsplit("  ").next().unwrap_or_default();
    Some(Interrupt {
        number,
        names: names(tail),
        served,
        served_by: CpuList::default(),
        disks: Vec::new(),
    })
}

fn names(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed_by_the_online_cores() {
        let text = "           CPU0       CPU2\n  9:          0          4  IO-APIC   9-fasteoi   acpi, ahci[0000:00:1f.2]\n\
                     36:          1    1312211 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0\n\
                    NMI:          0          0   Non-maskable interrupts\nERR:          0\n 99:  x  y\n";
        let all = parse(text);
        assert_eq!(all.iter().map(|one| one.number).collect::<Vec<_>>(), [9, 36]);
        assert_eq!(all[0].names, ["acpi", "ahci[0000:00:1f.2]"]);
        assert_eq!(all[1].names, ["virtio1-req.0"]);
        assert_eq!(all[1].served, BTreeMap::from([(0, 1), (2, 1_312_211)]));
        assert!(all[1].is_served_by(2) && all[1].is_served_by(0) && !all[0].is_served_by(0));
    }

    #[test]
    fn empty_and_invalid_text_has_no_interrupts() {
        assert_eq!(parse(""), []);
        assert_eq!(parse("CPU0\n 1:\n :\n2: 18446744073709551616 x\n"), []);
    }
}
