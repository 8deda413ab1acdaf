//! The core that a lane would get, whether it could be its alone, and who else has plans for it.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::super::groups::Group;
use super::super::roots::text;
use super::super::{CpuList, Machine};
use super::Statement;
use crate::policy::Core;
use crate::workqueues::{self, Away, Stays};

/// No tree of cpusets is looked at deeper, or longer.
const GROUPS_MAX: usize = 4_096;
/// Groups that lanes make.
const OWN: &str = "evermap-";

pub(super) fn check(machine: &Machine, taken: &[u32]) -> Vec<Statement> {
    let chosen = machine.choose_core(Core::Auto, taken);
    let core = match &chosen {
        Ok(chosen) => Statement::yes("core", format!("{}: {}", chosen.core, chosen.why.join("; "))),
        Err(error) => Statement::no("core", error.to_string()),
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

fn disk_interrupts(machine: &Machine) -> Statement {
    let name = "disk-interrupts";
    let all: Vec<String> = machine
        .interrupts
        .iter()
        .filter(|one| !one.disks.is_empty())
        .map(|one| {
            let by = if one.served_by.is_empty() {
                "a core that is not told".into()
            } else {
                format!("core {}", one.served_by)
            };
            format!("{} ({}, {}) by {by}", one.number, one.names.join(", "), one.disks.join(", "))
        })
        .collect();
    match all.len() {
        0 => Statement::no(name, "none of a disk is known: the core is chosen by all interrupts")
            .remedy("let this process read /proc/interrupts and /sys/block"),
        1..=8 => Statement::yes(name, all.join("; ")),
        count => Statement::yes(name, format!("{}; and {} more", all[..8].join("; "), count - 8)),
    }
}

fn exclusive(machine: &Machine, core: Option<u32>) -> Statement {
    let name = "exclusive-core";
    if machine.cpus.online.len() < 2 || machine.usable_cores().len() < 2 {
        return Statement::no(name, "it would leave others no core")
            .remedy("say `share = \"lend\"`");
    }
    let Some(core) = core else {
        return Statement::no(name, "there is no core, see `core`");
    };
    match (machine.groups.v1.get("cpuset"), &machine.groups.v2) {
        (Some(group), _) => by_cpuset(group, core),
        (None, Some(group)) => by_partition(group),
        (None, None) => Statement::no(name, "no control groups with cpusets are mounted")
            .remedy("mount them, or say `share = \"lend\"`"),
    }
}

fn by_cpuset(group: &Group, core: u32) -> Statement {
    let name = "exclusive-core";
    let directory = group.directory.display();
    if !is_writable(&group.directory) {
        return Statement::no(
            name,
            format!("{directory} (cpusets of version 1) cannot be written to"),
        )
        .remedy("start it as root, with the tree mounted writable; or say `share = \"lend\"`");
    }
    let foreign = overlapping(&group.mount, &group.directory, core);
    let foreign: Vec<String> = foreign.iter().map(|path| path.display().to_string()).collect();
    match foreign.as_slice() {
        [] => Statement::yes(
            name,
            format!(
                "by cpusets of version 1 in {directory}; no other cpuset has core {core} for itself"
            ),
        ),
        [first, rest @ ..] => {
            let more =
                if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
            Statement::yes(
                name,
                format!(
                    "by cpusets of version 1 in {directory}; but {first}{more} has core {core}, too, and what is in it is not moved away"
                ),
            )
        }
    }
}

/// A partition is made in the nearest group above that can have one, which is where `hold` makes it.
fn by_partition(group: &Group) -> Statement {
    let name = "exclusive-core";
    let directory = group.directory.display();
    let above = || group.directory.ancestors().take_while(|one| one.starts_with(&group.mount));
    if !above().any(has_cpusets) {
        return Statement::no(name, format!("{directory} (version 2) has no `cpuset` controller"))
            .remedy("let its parent pass it on (`echo +cpuset > cgroup.subtree_control`; `Delegate=cpuset` in a unit of systemd)");
    }
    let Some(parent) = above().find(|one| has_cpusets(one) && is_partition_root(one)) else {
        let why =
            "is the root of a partition without processes of its own, which a partition must be in";
        return Statement::no(name, format!("no group above {directory} (version 2) {why}"))
            .remedy("start it where the topmost group can be seen, or say `share = \"lend\"`");
    };
    if !is_writable(parent) {
        let parent = parent.display();
        return Statement::no(name, format!("{parent} (version 2) is not delegated to this user"))
            .remedy("start it as root, or in a scope of its own (`systemd-run --user --scope -p Delegate=yes`)");
    }
    Statement::yes(name, format!("by a partition of version 2 below {}", parent.display()))
}

fn has_cpusets(group: &Path) -> bool {
    text(&group.join("cgroup.controllers"))
        .is_ok_and(|all| all.split_ascii_whitespace().any(|one| one == "cpuset"))
}

/// The topmost group is one, and has no type; another must have no processes then.
fn is_partition_root(group: &Path) -> bool {
    if text(&group.join("cgroup.type")).is_err() {
        return true;
    }
    text(&group.join("cpuset.cpus.partition"))
        .is_ok_and(|said| matches!(said.trim(), "root" | "isolated"))
        && text(&group.join("cgroup.procs")).is_ok_and(|tasks| tasks.trim().is_empty())
}

/// Root may write everywhere but to what is mounted read-only, and both is what is asked for.
fn is_writable(directory: &Path) -> bool {
    access(directory, Access::WRITE_OK).is_ok()
        && access(directory.join("cgroup.procs"), Access::WRITE_OK).is_ok()
}

/// Groups of others that name this core: all in the tree but the own one, those above it, which have all of its cores, and those
/// of lanes.
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

/// The kernel's own work, which real-time programs wait for where the kernel is not preempted.
fn unbound_work(machine: &Machine, core: Option<u32>) -> Statement {
    let name = "workqueues";
    let Some(core) = core else {
        return Statement::no(name, "there is no core, see `core`");
    };
    match Away::plan(&machine.roots.sys.join(workqueues::DIRECTORY), core) {
        Ok(Some(_)) => Statement::yes(
            name,
            format!(
                "the kernel's unbound work can be kept off core {core}, and is for deadlines of 10 ms or less"
            ),
        ),
        Ok(None) => Statement::yes(name, format!("the kernel does no unbound work on core {core}")),
        Err(Stays { why, remedy }) => {
            Statement::no(name, format!("the kernel's unbound work stays on core {core}: {why}"))
                .remedy(remedy)
        }
    }
}

fn tickless(machine: &Machine) -> Statement {
    let name = "tickless";
    match machine.cpus.tickless.is_empty() {
        false => Statement::yes(name, format!("cores {} have no timer ticks while one program runs", machine.cpus.tickless)),
        true => Statement::no(name, "no core was booted with `nohz_full`: each running program is interrupted at every tick")
            .remedy("boot with `nohz_full=` the lane's core, if the kernel was built for that"),
    }
}
