//! Holds a core with cpusets of version 1: two groups below the one that the lane was started from,
//! one for the program and one for all other tasks of that group.
//!
//! Invariant: every task in the two groups came from their parent and goes back there. So the
//! journal needs no list of tasks, and tasks started later are undone as well. The lane's group is
//! exclusive: the kernel keeps all other tasks off the core, except its own threads that are bound
//! to the core and tasks that it refuses to move.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::tree::{Tree, tasks};
use super::{
    HoldRefusal, LANE, OwnGroup, REST, ROUNDS_MAX, core_of, cores, dismantle, make, verify_absent,
    verify_unshared, write,
};

/// Groups of a hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cpusets {
    pub(crate) core: u32,
    /// Group that the lane was started from.
    pub(crate) parent: PathBuf,
    /// Group of the program.
    pub(crate) lane: OwnGroup,
    /// Group of the other tasks of `parent`.
    pub(crate) rest: OwnGroup,
}

impl Cpusets {
    pub(super) fn plan(tree: &dyn Tree, parent: &Path, core: u32) -> Result<Self, HoldRefusal> {
        if let Some(held) = core_of(parent) {
            return Err(HoldRefusal::Within { group: parent.to_owned(), held });
        }
        let all = cores(tree, &parent.join("cpuset.cpus"))?;
        // Online cores. On kernels without this file, `cpuset.cpus` contains only online cores.
        let online =
            cores(tree, &parent.join("cpuset.effective_cpus")).unwrap_or_else(|_| all.clone());
        let group = parent.to_owned();
        if !online.contains(core) {
            return Err(HoldRefusal::NotInGroup { group, cores: online });
        }
        if online.len() < 2 {
            return Err(HoldRefusal::NoCoreLeft { group, cores: online });
        }
        let (lane, rest) = (OwnGroup::new(parent, LANE, core), OwnGroup::new(parent, REST, core));
        verify_absent(tree, &lane)?;
        verify_absent(tree, &rest)?;
        verify_unshared(tree, parent, core)?;
        let flag = parent.join("cpuset.cpu_exclusive");
        match tree.read(&flag).as_deref() {
            Ok("1") => Ok(Self { core, parent: group, lane, rest }),
            Ok(_) => Err(HoldRefusal::NotExclusive { group }),
            Err(_) => {
                let why = io::Error::other("it is unreadable");
                Err(HoldRefusal::of("read", &flag, why))
            }
        }
    }

    pub(super) fn make(&mut self, tree: &dyn Tree) -> Result<(), HoldRefusal> {
        make(tree, &mut self.rest)?;
        make(tree, &mut self.lane)
    }

    pub(super) fn fill(&self, tree: &dyn Tree) -> Result<(), HoldRefusal> {
        let file = self.parent.join("cpuset.cpus");
        let own = [self.core].into_iter().collect();
        let others = cores(tree, &file)?.without(&own);
        let file = self.parent.join("cpuset.mems");
        let memory = tree.read(&file).map_err(|source| HoldRefusal::of("read", &file, source))?;
        write(tree, &self.rest.file("cpuset.cpus"), &others.to_string())?;
        write(tree, &self.rest.file("cpuset.mems"), &memory)?;
        write(tree, &self.lane.file("cpuset.cpus"), &self.core.to_string())?;
        write(tree, &self.lane.file("cpuset.mems"), &memory)?;
        write(tree, &self.lane.file("cpuset.cpu_exclusive"), "1")?;
        self.empty_parent(tree)
    }

    /// Moves the tasks of the parent to the rest group until no new ones appear. Some refuse:
    /// kernel threads, and tasks bound by the kernel.
    pub(super) fn empty_parent(&self, tree: &dyn Tree) -> Result<(), HoldRefusal> {
        let from = self.parent.join("tasks");
        let to = self.rest.file("tasks");
        let mut staying: HashSet<u32> = HashSet::new();
        for _ in 0..ROUNDS_MAX {
            let there =
                tasks(tree, &from).map_err(|source| HoldRefusal::of("read", &from, source))?;
            let mut moved = 0;
            for task in there {
                if staying.contains(&task) {
                    continue;
                }
                let is_moved =
                    !tree.is_kernel_thread(task) && tree.write(&to, &task.to_string()).is_ok();
                if is_moved {
                    moved += 1;
                } else {
                    staying.insert(task);
                }
            }
            if moved == 0 {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn undo(&self, tree: &dyn Tree) -> Result<Vec<String>, HoldRefusal> {
        // The lane's group first: while it exists, the rest group cannot contain the core.
        let results = [&self.lane, &self.rest]
            .map(|made| dismantle(tree, made, "tasks", &[self.parent.as_path()]));
        results.into_iter().filter_map(Result::transpose).collect()
    }
}
