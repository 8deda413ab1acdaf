//! A core for one program alone: cpusets of version 1, partitions of version 2.
//!
//! Tasks are moved from the group that the lane was started from, and from no other; the kernel's never are. What is about to be done is
//! handed to the journal first, and can be undone from any prefix of it: a group that was not yet known to be made by this lane is
//! removed only if it is empty.

mod refusal;
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

pub use refusal::HoldRefusal;
use tree::Tree;

use crate::machine::{CpuList, Groups};
use crate::{Error, Result};

/// How often tasks that fork while they are moved are asked for again. Each round leaves only what was started during the one before.
const ROUNDS_MAX: usize = 64;
/// How long a group is waited for to become empty. A task that is ending cannot be moved, though the kernel says it was, and is there until it
/// has ended.
const EMPTY_MAX: Duration = Duration::from_secs(2);
/// Between two rounds, when there have been as many as are enough for tasks that start others.
const ROUND_PAUSE: Duration = Duration::from_millis(2);

/// A group that a lane makes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Made {
    /// Its directory.
    pub(crate) path: PathBuf,
    /// What tells it from another of its name; none until it is there.
    pub(crate) inode: Option<u64>,
}

/// The names of groups of lanes, before the core's number: for the program, and for all else that was in the group above.
const LANE: &str = "evermap-lane-";
const REST: &str = "evermap-rest-";

/// Which core a lane made the group for, by its name; none for groups of others.
pub(crate) fn core_of(group: &Path) -> Option<u32> {
    let name = group.file_name()?.to_str()?;
    name.strip_prefix(LANE).or(name.strip_prefix(REST))?.parse().ok()
}

impl Made {
    fn new(parent: &Path, name: &str, core: u32) -> Self {
        Self { path: parent.join(format!("{name}{core}")), inode: None }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// What is to be done with it when a lane is undone.
    fn now(&self, tree: &dyn Tree) -> io::Result<Now> {
        match tree.inode(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Now::Gone),
            Err(error) => Err(error),
            Ok(_) if self.inode.is_none() => Ok(Now::Unknown),
            Ok(inode) if self.inode == Some(inode) => Ok(Now::Ours),
            Ok(_) => Ok(Now::Anothers),
        }
    }
}

/// Whose a group is that has the name of one of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Now {
    Ours,
    /// Made by this lane just before it was killed, or by somebody else: nothing is in it that this lane moved there.
    Unknown,
    Anothers,
    Gone,
}

/// What a hold changes: what the journal keeps of it, and what it is undone by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "version")]
pub(crate) enum Hold {
    #[serde(rename = "1")]
    V1(v1::Cpusets),
    #[serde(rename = "2")]
    V2(v2::Partition),
}

impl Hold {
    /// What would be changed to hold a core, by the version that has the cpusets here. Changes nothing.
    ///
    /// # Errors
    /// [`Error::HoldRefused`], with the reason.
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

    /// Makes it so. `journal` is called before each step that it must know of; when it fails, or a step, the caller undoes.
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

    /// Undoes it: tasks go back, groups are removed. Does as much as it can; done again, it finds nothing. Gives what it did, in
    /// sentences, or what was in its way.
    pub(crate) fn undo(&self, tree: &dyn Tree) -> Result<Vec<String>, HoldRefusal> {
        match self {
            Hold::V1(cpusets) => cpusets.undo(tree),
            Hold::V2(partition) => partition.undo(tree),
        }
    }

    /// Puts a process on the core.
    pub(crate) fn enter(&self, tree: &dyn Tree, pid: u32) -> Result<(), HoldRefusal> {
        let group = match self {
            Hold::V1(cpusets) => &cpusets.lane.path,
            Hold::V2(partition) => &partition.group.path,
        };
        move_process(tree, pid, group)
    }

    /// Puts one thread on the core, and leaves the others of its process where they are: with version 1 only.
    pub(crate) fn enter_thread(&self, tree: &dyn Tree, thread: u32) -> Result<(), HoldRefusal> {
        match self {
            Hold::V1(cpusets) => write(tree, &cpusets.lane.file("tasks"), &thread.to_string()),
            Hold::V2(_) => Err(HoldRefusal::WholeProcesses),
        }
    }

    /// Takes off the core what the program started and is not the program: it goes to where all others are. Gives how many that were.
    pub(crate) fn leave_all_but(&self, tree: &dyn Tree, program: u32) -> usize {
        let (from, to) = match self {
            Hold::V1(cpusets) => (&cpusets.lane.path, &cpusets.rest.path),
            Hold::V2(partition) => (&partition.group.path, &partition.home),
        };
        let there = tree::tasks(tree, &from.join("cgroup.procs")).unwrap_or_default();
        let others = there.iter().filter(|pid| **pid != program);
        others.filter(|pid| move_process(tree, **pid, to).is_ok()).count()
    }

    /// Moves away what came to the core's former group since: the kernel starts programs there. Says if the kernel gave the core up.
    pub(crate) fn keep(&self, tree: &dyn Tree) -> Result<(), HoldRefusal> {
        match self {
            Hold::V1(cpusets) => cpusets.empty_parent(tree),
            Hold::V2(partition) => partition.verify(tree),
        }
    }

    /// Which core.
    pub(crate) fn core(&self) -> u32 {
        match self {
            Hold::V1(cpusets) => cpusets.core,
            Hold::V2(partition) => partition.core,
        }
    }

    /// Of a later journal than the one that said that a controller was switched on here: the last lane switches it off.
    pub(crate) fn inherit(&mut self, other: &Hold) {
        if let (Hold::V2(own), Hold::V2(other)) = (self, other)
            && own.parent == other.parent
        {
            own.enabled |= other.enabled;
        }
    }

    /// Its groups.
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

/// A file's text, as cores.
fn cores(tree: &dyn Tree, file: &Path) -> Result<CpuList, HoldRefusal> {
    let text = tree.read(file).map_err(|source| HoldRefusal::of("read", file, source))?;
    text.parse().map_err(|_| HoldRefusal::of("read", file, io::ErrorKind::InvalidData.into()))
}

fn write(tree: &dyn Tree, file: &Path, text: &str) -> Result<(), HoldRefusal> {
    tree.write(file, text).map_err(|source| HoldRefusal::of("write", file, source))
}

/// Makes a group that must not be there, and notes which it is.
fn make(tree: &dyn Tree, made: &mut Made) -> Result<(), HoldRefusal> {
    match tree.make(&made.path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(HoldRefusal::Collision { group: made.path.clone() });
        }
        Err(source) => return Err(HoldRefusal::of("make", &made.path, source)),
    }
    let inode = tree.inode(&made.path);
    made.inode = Some(inode.map_err(|source| HoldRefusal::of("look at", &made.path, source))?);
    Ok(())
}

/// Refuses a group that is there already.
fn verify_absent(tree: &dyn Tree, made: &Made) -> Result<(), HoldRefusal> {
    match tree.inode(&made.path) {
        Ok(_) => Err(HoldRefusal::Collision { group: made.path.clone() }),
        Err(_) => Ok(()),
    }
}

/// Refuses if a group beside ours has the core.
fn verify_unshared(tree: &dyn Tree, parent: &Path, core: u32) -> Result<(), HoldRefusal> {
    let groups =
        tree.groups(parent).map_err(|source| HoldRefusal::of("look into", parent, source))?;
    for group in groups {
        // Groups may go while they are looked at, and need not have cores.
        let Ok(cores) = cores(tree, &group.join("cpuset.cpus")) else { continue };
        if cores.contains(core) {
            return Err(HoldRefusal::Shared { group, cores });
        }
    }
    Ok(())
}

/// Empties a group that is this lane's into another one and removes it.
fn dissolve(
    tree: &dyn Tree,
    made: &Made,
    list: &str,
    targets: &[&Path],
) -> Result<Option<String>, HoldRefusal> {
    let failed = |source| HoldRefusal::of("look at", &made.path, source);
    let now = made.now(tree).map_err(failed)?;
    let mut moved = 0;
    match now {
        Now::Gone | Now::Anothers => return Ok(None),
        Now::Unknown => {}
        Now::Ours => moved = empty(tree, made, list, targets)?,
    }
    match remove(tree, &made.path) {
        Ok(()) => {
            let name = made.path.display();
            Ok(Some(match moved {
                0 => format!("{name} is removed"),
                moved => format!("{name} is removed, {moved} tasks are back where they were"),
            }))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        // Somebody's who made it in the moment in which this lane was about to.
        Err(_) if now == Now::Unknown => Ok(None),
        Err(source) => Err(HoldRefusal::of("remove", &made.path, source)),
    }
}

/// Moves all tasks out, also those that are started meanwhile, and waits for those that are ending.
fn empty(
    tree: &dyn Tree,
    made: &Made,
    list: &str,
    targets: &[&Path],
) -> Result<usize, HoldRefusal> {
    let from = made.file(list);
    let until = Instant::now() + EMPTY_MAX;
    let mut moved = HashSet::new();
    let mut refusal = None;
    for round in 0.. {
        let there =
            tree::tasks(tree, &from).map_err(|source| HoldRefusal::of("read", &from, source))?;
        if there.is_empty() {
            return Ok(moved.len());
        }
        if round > ROUNDS_MAX {
            // Whoever is refused again and again stays; whoever seems to be moved and is there is ending.
            if Instant::now() > until || there.iter().all(|task| !moved.contains(task)) {
                break;
            }
            std::thread::sleep(ROUND_PAUSE);
        }
        for task in there {
            // The second place is for when the first is gone.
            let mut tries = targets.iter().map(|to| write(tree, &to.join(list), &task.to_string()));
            match tries.find_map(|tried| tried.map_err(|why| refusal = Some(why)).ok()) {
                Some(()) => drop(moved.insert(task)),
                None => drop(moved.remove(&task)),
            }
        }
    }
    let stay = || HoldRefusal::of("empty", &made.path, io::Error::other("some tasks don't end"));
    Err(refusal.unwrap_or_else(stay))
}

/// A group that has just lost its last task may be busy for a moment.
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
