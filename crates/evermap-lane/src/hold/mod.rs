//! Holds a core for one program alone: cpusets of version 1, partitions of version 2.
//!
//! Moves tasks only out of the group that the lane was started from, and never kernel threads. The
//! journal gets each step before it is done, and any prefix of the steps can be undone: a group is
//! removed if this lane is known to have made it, or if it is empty.

#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;
pub(crate) mod tree;
mod v1;
mod v2;

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::refusal::HoldRefusal;
use tree::Tree;

use crate::machine::{CpuList, Groups};
use crate::{Error, Result};

/// Maximum number of rounds over tasks that fork while they are moved. Each round leaves only tasks
/// started during the round before.
const ROUNDS_MAX: usize = 64;
/// Longest wait for a group to become empty. A task that is ending cannot be moved, although the
/// kernel reports success, and stays until it has ended.
const EMPTY_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause between rounds after [`ROUNDS_MAX`].
const ROUND_PAUSE: Duration = Duration::from_millis(2);

/// Control group made by a lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OwnGroup {
    /// Directory of the group.
    pub(crate) path: PathBuf,
    /// Inode, which tells the group from another one of its name. `None` until the group is made.
    pub(crate) inode: Option<u64>,
}

/// Name prefixes of lanes' groups, before the number of the core: for the program, and for the
/// other tasks of the parent.
const LANE: &str = "evermap-lane-";
const REST: &str = "evermap-rest-";

/// Core of a lane's group, by its name. Returns `None` for other groups.
pub(crate) fn core_of(group: &Path) -> Option<u32> {
    let name = group.file_name()?.to_str()?;
    name.strip_prefix(LANE).or(name.strip_prefix(REST))?.parse().ok()
}

impl OwnGroup {
    fn new(parent: &Path, name: &str, core: u32) -> Self {
        Self { path: parent.join(format!("{name}{core}")), inode: None }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Present state of the group.
    fn state(&self, tree: &dyn Tree) -> io::Result<GroupState> {
        match tree.inode(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(GroupState::Gone),
            Err(error) => Err(error),
            Ok(_) if self.inode.is_none() => Ok(GroupState::Unknown),
            Ok(inode) if self.inode == Some(inode) => Ok(GroupState::Ours),
            Ok(_) => Ok(GroupState::Foreign),
        }
    }
}

/// Owner of a group that has the name of a lane's group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GroupState {
    Ours,
    /// The group may come from this lane, killed just afterwards, or from another program. This
    /// lane has moved no tasks into it.
    Unknown,
    Foreign,
    Gone,
}

/// Changes of a hold, as journalled and undone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "version")]
pub(crate) enum Hold {
    #[serde(rename = "1")]
    V1(v1::Cpusets),
    #[serde(rename = "2")]
    V2(v2::Partition),
}

impl Hold {
    /// Plans to hold a core with the version that has the cpuset controller here. Changes nothing.
    ///
    /// # Errors
    /// [`Error::HoldRefused`] with the reason.
    pub(crate) fn plan(tree: &dyn Tree, groups: &Groups, core: u32) -> Result<Self> {
        let refused = |why| Error::HoldRefused { core, why };
        if let Some(group) = groups.v1.get("cpuset") {
            return v1::Cpusets::plan(tree, &group.directory, core).map(Hold::V1).map_err(refused);
        }
        if let Some(group) = &groups.v2 {
            let planned = v2::Partition::plan(tree, &group.mount, &group.directory, core);
            return planned.map(Hold::V2).map_err(refused);
        }
        Err(refused(HoldRefusal::NoController))
    }

    /// Makes the changes. Calls `journal` before each step that must be journalled. After an error
    /// the caller undoes.
    pub(crate) fn make(
        &mut self,
        tree: &dyn Tree,
        journal: &mut dyn FnMut(&Hold) -> Result<()>,
    ) -> Result<()> {
        let core = self.core();
        let refused = |why| Error::HoldRefused { core, why };
        journal(self)?;
        self.make_groups(tree).map_err(refused)?;
        journal(self)?;
        match self {
            Hold::V1(cpusets) => cpusets.fill(tree),
            Hold::V2(partition) => partition.fill(tree),
        }
        .map_err(refused)
    }

    fn make_groups(&mut self, tree: &dyn Tree) -> Result<(), HoldRefusal> {
        match self {
            Hold::V1(cpusets) => cpusets.make(tree),
            Hold::V2(partition) => partition.make(tree),
        }
    }

    /// Moves tasks back and removes the groups, as far as possible. Can be repeated. Returns the
    /// actions in sentences, or the obstacle.
    pub(crate) fn undo(&self, tree: &dyn Tree) -> Result<Vec<String>, HoldRefusal> {
        match self {
            Hold::V1(cpusets) => cpusets.undo(tree),
            Hold::V2(partition) => partition.undo(tree),
        }
    }

    /// Moves a process to the core.
    pub(crate) fn enter(&self, tree: &dyn Tree, pid: u32) -> Result<(), HoldRefusal> {
        let group = match self {
            Hold::V1(cpusets) => &cpusets.lane.path,
            Hold::V2(partition) => &partition.group.path,
        };
        move_process(tree, pid, group)
    }

    /// Moves one thread to the core without the rest of its process. Version 1 only.
    pub(crate) fn enter_thread(&self, tree: &dyn Tree, thread: u32) -> Result<(), HoldRefusal> {
        match self {
            Hold::V1(cpusets) => write(tree, &cpusets.lane.file("tasks"), &thread.to_string()),
            Hold::V2(_) => Err(HoldRefusal::WholeProcesses),
        }
    }

    /// Moves processes that the program started off the core, to all other tasks. Returns their
    /// number.
    pub(crate) fn move_children_off(&self, tree: &dyn Tree, program: u32) -> usize {
        let (from, to) = match self {
            Hold::V1(cpusets) => (&cpusets.lane.path, &cpusets.rest.path),
            Hold::V2(partition) => (&partition.group.path, &partition.home),
        };
        let there = tree::tasks(tree, &from.join("cgroup.procs")).unwrap_or_default();
        let others = there.iter().filter(|pid| **pid != program);
        others.filter(|pid| move_process(tree, **pid, to).is_ok()).count()
    }

    /// Version 1: moves tasks away that entered the parent group since. Version 2: checks that the
    /// kernel has not revoked the partition.
    pub(crate) fn maintain(&self, tree: &dyn Tree) -> Result<(), HoldRefusal> {
        match self {
            Hold::V1(cpusets) => cpusets.empty_parent(tree),
            Hold::V2(partition) => partition.verify(tree),
        }
    }

    /// Number of the core.
    pub(crate) fn core(&self) -> u32 {
        match self {
            Hold::V1(cpusets) => cpusets.core,
            Hold::V2(partition) => partition.core,
        }
    }

    /// Takes over from another lane's hold that a lane enabled the controller, so that the last
    /// lane disables it.
    pub(crate) fn inherit_controller(&mut self, other: &Hold) {
        if let (Hold::V2(own), Hold::V2(other)) = (self, other)
            && own.parent == other.parent
        {
            own.enabled |= other.enabled;
        }
    }

    /// Groups of the hold.
    pub(crate) fn groups(&self) -> Vec<&Path> {
        match self {
            Hold::V1(cpusets) => vec![&cpusets.lane.path, &cpusets.rest.path],
            Hold::V2(partition) => vec![&partition.group.path],
        }
    }
}

fn move_process(tree: &dyn Tree, pid: u32, group: &Path) -> Result<(), HoldRefusal> {
    write(tree, &group.join("cgroup.procs"), &pid.to_string())
}

/// Parses a file's text as a list of cores.
fn cores(tree: &dyn Tree, file: &Path) -> Result<CpuList, HoldRefusal> {
    let text = tree.read(file).map_err(|source| HoldRefusal::of("read", file, source))?;
    text.parse().map_err(|_| HoldRefusal::of("read", file, io::ErrorKind::InvalidData.into()))
}

fn write(tree: &dyn Tree, file: &Path, text: &str) -> Result<(), HoldRefusal> {
    tree.write(file, text).map_err(|source| HoldRefusal::of("write", file, source))
}

/// Makes a group that must not exist, and records its inode.
fn make(tree: &dyn Tree, made: &mut OwnGroup) -> Result<(), HoldRefusal> {
    match tree.make(&made.path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(HoldRefusal::Collision { group: made.path.clone() });
        }
        Err(source) => return Err(HoldRefusal::of("make", &made.path, source)),
    }
    let inode = tree.inode(&made.path);
    made.inode = Some(inode.map_err(|source| HoldRefusal::of("stat", &made.path, source))?);
    Ok(())
}

/// Fails if the group exists.
fn verify_absent(tree: &dyn Tree, made: &OwnGroup) -> Result<(), HoldRefusal> {
    match tree.inode(&made.path) {
        Ok(_) => Err(HoldRefusal::Collision { group: made.path.clone() }),
        Err(_) => Ok(()),
    }
}

/// Fails if another group in the parent has the core.
fn verify_unshared(tree: &dyn Tree, parent: &Path, core: u32) -> Result<(), HoldRefusal> {
    let groups = tree.groups(parent).map_err(|source| HoldRefusal::of("list", parent, source))?;
    for group in groups {
        // A group may vanish during the check, and need not have cores.
        let Ok(cores) = cores(tree, &group.join("cpuset.cpus")) else { continue };
        if cores.contains(core) {
            return Err(HoldRefusal::Shared { group, cores });
        }
    }
    Ok(())
}

/// Moves the tasks of a lane's group to another group and removes it.
fn dismantle(
    tree: &dyn Tree,
    made: &OwnGroup,
    list: &str,
    targets: &[&Path],
) -> Result<Option<String>, HoldRefusal> {
    let failed = |source| HoldRefusal::of("stat", &made.path, source);
    let now = made.state(tree).map_err(failed)?;
    let mut moved = 0;
    match now {
        GroupState::Gone | GroupState::Foreign => return Ok(None),
        GroupState::Unknown => {}
        GroupState::Ours => moved = empty(tree, made, list, targets)?,
    }
    match remove(tree, &made.path) {
        Ok(()) => {
            let name = made.path.display();
            Ok(Some(match moved {
                0 => format!("removed {name}"),
                moved => format!("removed {name} and moved its {moved} tasks back"),
            }))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        // Another program made it just before this lane would have.
        Err(_) if now == GroupState::Unknown => Ok(None),
        Err(source) => Err(HoldRefusal::of("remove", &made.path, source)),
    }
}

/// Moves all tasks out, including new ones, and waits for those that are ending.
fn empty(
    tree: &dyn Tree,
    made: &OwnGroup,
    list: &str,
    targets: &[&Path],
) -> Result<usize, HoldRefusal> {
    let from = made.file(list);
    let until = Instant::now() + EMPTY_TIMEOUT;
    let mut moved = HashSet::new();
    let mut refusal = None;
    for round in 0.. {
        let there =
            tree::tasks(tree, &from).map_err(|source| HoldRefusal::of("read", &from, source))?;
        if there.is_empty() {
            return Ok(moved.len());
        }
        if round > ROUNDS_MAX {
            // A task that cannot be moved stays. A task that the kernel claims to have moved is
            // ending.
            if Instant::now() > until || there.iter().all(|task| !moved.contains(task)) {
                break;
            }
            std::thread::sleep(ROUND_PAUSE);
        }
        for task in there {
            // The second target is used if the first one is gone.
            let mut tries = targets.iter().map(|to| write(tree, &to.join(list), &task.to_string()));
            match tries.find_map(|tried| tried.map_err(|why| refusal = Some(why)).ok()) {
                Some(()) => drop(moved.insert(task)),
                None => drop(moved.remove(&task)),
            }
        }
    }
    let stay = || HoldRefusal::of("empty", &made.path, io::Error::other("some tasks do not end"));
    Err(refusal.unwrap_or_else(stay))
}

/// Removes a group, which may be busy for a moment after its last task has left.
fn remove(tree: &dyn Tree, group: &Path) -> io::Result<()> {
    let mut result = Ok(());
    for wait_ms in [0, 1, 2, 5, 10, 20, 50] {
        std::thread::sleep(std::time::Duration::from_millis(wait_ms));
        result = tree.remove(group);
        match &result {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
            _ => break,
        }
    }
    result
}
