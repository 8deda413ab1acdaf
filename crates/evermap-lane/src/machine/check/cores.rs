//! Checks of the lane's core: which core, whether it can be held, and which other groups use it.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::super::groups::Group;
use super::super::roots::text;
use super::super::{CpuList, Machine};
use super::CheckResult;
use crate::policy::Core;
use crate::workqueues::{self, Exclusion, NotExcluded};

/// Maximum number of groups examined in a tree of cpusets.
const GROUPS_MAX: usize = 4_096;
/// Prefix of groups made by lanes.
const OWN: &str = "evermap-";

pub(super) fn check(machine: &Machine, taken: &[u32]) -> Vec<CheckResult> {
    let chosen = machine.choose_core(Core::Auto, taken);
    let core = match &chosen {
        Ok(chosen) => {
            CheckResult::yes("core", format!("{}: {}", chosen.core, chosen.why.join("; ")))
        }
        Err(error) => CheckResult::no("core", error.to_string()),
    };
    let chosen = chosen.ok().map(|chosen| chosen.core);
    vec![
        core,
        disk_interrupts(machine),
        exclusive(machine, chosen),
        unbound_work(machine, chosen),
        tickless(machine),
    ]
}

fn disk_interrupts(machine: &Machine) -> CheckResult {
    let name = "disk-interrupts";
    let all: Vec<String> = machine
        .interrupts
        .iter()
        .filter(|one| !one.disks.is_empty())
        .map(|one| {
            let by = if one.served_by.is_empty() {
                "an unknown core".into()
            } else {
                format!("core {}", one.served_by)
            };
            format!("{} ({}, {}) by {by}", one.number, one.names.join(", "), one.disks.join(", "))
        })
        .collect();
    match all.len() {
        0 => CheckResult::no(
            name,
            "no disk interrupts are known: the core is chosen by all interrupts",
        )
        .remedy("let this process read /proc/interrupts and /sys/block"),
        1..=8 => CheckResult::yes(name, all.join("; ")),
        count => CheckResult::yes(name, format!("{}; and {} more", all[..8].join("; "), count - 8)),
    }
}

fn exclusive(machine: &Machine, core: Option<u32>) -> CheckResult {
    let name = "exclusive-core";
    if machine.cpus.online.len() < 2 || machine.usable_cores().len() < 2 {
        return CheckResult::no(name, "it would leave no core for other programs")
            .remedy("set `share = \"lend\"`");
    }
    let Some(core) = core else {
        return CheckResult::no(name, "no core, see `core`");
    };
    match (machine.groups.v1.get("cpuset"), &machine.groups.v2) {
        (Some(group), _) => by_cpuset(group, core),
        (None, Some(group)) => by_partition(group),
        (None, None) => CheckResult::no(name, "no control groups with cpusets are mounted")
            .remedy("mount them, or set `share = \"lend\"`"),
    }
}

fn by_cpuset(group: &Group, core: u32) -> CheckResult {
    let name = "exclusive-core";
    let directory = group.directory.display();
    if !is_writable(&group.directory) {
        return CheckResult::no(
            name,
            format!("{directory} (cpusets of version 1) is not writable"),
        )
        .remedy(
            "start the lane as root, with the tree mounted writable; or set `share = \"lend\"`",
        );
    }
    let foreign = overlapping(&group.mount, &group.directory, core);
    let foreign: Vec<String> = foreign.iter().map(|path| path.display().to_string()).collect();
    match foreign.as_slice() {
        [] => CheckResult::yes(
            name,
            format!("by cpusets of version 1 in {directory}; no other cpuset names core {core}"),
        ),
        [first, rest @ ..] => {
            let more =
                if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
            CheckResult::yes(
                name,
                format!(
                    "by cpusets of version 1 in {directory}; but {first}{more} names core {core}, too, and its tasks are not moved away"
                ),
            )
        }
    }
}

/// Checks for a partition in the nearest suitable group above, where `hold` makes it.
fn by_partition(group: &Group) -> CheckResult {
    let name = "exclusive-core";
    let directory = group.directory.display();
    let above = || group.directory.ancestors().take_while(|one| one.starts_with(&group.mount));
    if !above().any(has_cpusets) {
        return CheckResult::no(name, format!("{directory} (version 2) has no `cpuset` controller"))
            .remedy("enable it in the parent (`echo +cpuset > cgroup.subtree_control`; `Delegate=cpuset` in a unit of systemd)");
    }
    let Some(parent) = above().find(|one| has_cpusets(one) && is_partition_root(one)) else {
        let why = "is a partition root without processes, which a partition needs as its parent";
        return CheckResult::no(name, format!("no group above {directory} (version 2) {why}"))
            .remedy(
                "start the lane where the topmost group is visible, or set `share = \"lend\"`",
            );
    };
    if !is_writable(parent) {
        let parent = parent.display();
        return CheckResult::no(name, format!("{parent} (version 2) is not delegated to this user"))
            .remedy("start the lane as root, or in a separate scope (`systemd-run --user --scope -p Delegate=yes`)");
    }
    CheckResult::yes(name, format!("by a partition of version 2 below {}", parent.display()))
}

fn has_cpusets(group: &Path) -> bool {
    text(&group.join("cgroup.controllers"))
        .is_ok_and(|all| all.split_ascii_whitespace().any(|one| one == "cpuset"))
}

/// Returns true for a partition root: the topmost group, which has no type, or another one without
/// processes.
fn is_partition_root(group: &Path) -> bool {
    if text(&group.join("cgroup.type")).is_err() {
        return true;
    }
    text(&group.join("cpuset.cpus.partition"))
        .is_ok_and(|said| matches!(said.trim(), "root" | "isolated"))
        && text(&group.join("cgroup.procs")).is_ok_and(|tasks| tasks.trim().is_empty())
}

/// Returns true if the directory is writable. For root, access is denied only on read-only mounts,
/// so the check covers the directory and a file.
fn is_writable(directory: &Path) -> bool {
    access(directory, Access::WRITE_OK).is_ok()
        && access(directory.join("cgroup.procs"), Access::WRITE_OK).is_ok()
}

/// Groups of other programs that name this core: all in the tree except the own group, the groups
/// above it, which have all of its cores, and groups of lanes.
fn overlapping(mount: &Path, own: &Path, core: u32) -> Vec<PathBuf> {
    let mut left = vec![mount.to_owned()];
    let mut found = Vec::new();
    let mut seen = 0;
    while let Some(directory) = left.pop() {
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            seen += 1;
            if seen > GROUPS_MAX {
                return found;
            }
            let path = entry.path();
            let cores: CpuList = text(&path.join("cpuset.cpus"))
                .ok()
                .and_then(|text| text.parse().ok())
                .unwrap_or_default();
            let is_lane = entry.file_name().to_string_lossy().starts_with(OWN);
            if cores.contains(core) && !is_lane && !own.starts_with(&path) {
                found.push(path.clone());
            }
            left.push(path);
        }
    }
    found.sort();
    found
}

/// Checks whether the kernel's unbound work can be kept off the core. Real-time programs wait for
/// it on kernels without preemption.
fn unbound_work(machine: &Machine, core: Option<u32>) -> CheckResult {
    let name = "workqueues";
    let Some(core) = core else {
        return CheckResult::no(name, "no core, see `core`");
    };
    match Exclusion::plan(&machine.roots.sys.join(workqueues::DIRECTORY), core) {
        Ok(Some(_)) => CheckResult::yes(
            name,
            format!(
                "the kernel's unbound work can be kept off core {core}; lanes do so for deadlines of 10 ms or less"
            ),
        ),
        Ok(None) => {
            CheckResult::yes(name, format!("the kernel does no unbound work on core {core}"))
        }
        Err(NotExcluded { why, remedy }) => {
            CheckResult::no(name, format!("the kernel's unbound work stays on core {core}: {why}"))
                .remedy(remedy)
        }
    }
}

fn tickless(machine: &Machine) -> CheckResult {
    let name = "tickless";
    match machine.cpus.tickless.is_empty() {
        false => CheckResult::yes(name, format!("cores {} have no timer ticks while one program runs", machine.cpus.tickless)),
        true => CheckResult::no(name, "no core was booted with `nohz_full`: each running program is interrupted at every tick")
            .remedy("boot with `nohz_full=` the lane's core, if the kernel was built for that"),
    }
}
