//! Holds a core with a partition of version 2: one group with a core that its parent loses. No
//! other task moves.
//!
//! The parent of a partition must be a partition root itself, and must contain no processes since
//! it contains groups. So the partition is made in the nearest suitable ancestor of the lane's
//! group, usually the topmost group. Only the text of `cpuset.cpus.partition` shows whether the
//! kernel accepted it; a successful write proves nothing.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::tree::Tree;
use super::{
    HoldRefusal, LANE, OwnGroup, cores, dismantle, make, verify_absent, verify_unshared, write,
};

/// Groups of a hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Partition {
    pub(crate) core: u32,
    /// Group in which the partition is made.
    pub(crate) parent: PathBuf,
    /// Group of the partition.
    pub(crate) group: OwnGroup,
    /// Group that the program came from and returns to.
    pub(crate) home: PathBuf,
    /// A lane enabled the cpuset controller for the groups of `parent`.
    pub(crate) enabled: bool,
}

impl Partition {
    pub(super) fn plan(
        tree: &dyn Tree,
        mount: &Path,
        home: &Path,
        core: u32,
    ) -> Result<Self, HoldRefusal> {
        let above = || home.ancestors().take_while(|group| group.starts_with(mount));
        let has = |group: &Path, file: &str| {
            tree.read(&group.join(file)).is_ok_and(|all| all.split(' ').any(|one| one == "cpuset"))
        };
        if !above().any(|group| has(group, "cgroup.controllers")) {
            return Err(HoldRefusal::NoController);
        }
        let can_have_one = |group: &&Path| has(group, "cgroup.controllers") && is_root(tree, group);
        let Some(parent) = above().find(can_have_one) else {
            return Err(HoldRefusal::NoPartitionRoot { group: home.to_owned() });
        };
        let all = cores(tree, &parent.join("cpuset.cpus.effective"))?;
        let group = OwnGroup::new(parent, LANE, core);
        verify_absent(tree, &group)?;
        verify_unshared(tree, parent, core)?;
        if !all.contains(core) {
            return Err(HoldRefusal::NotInGroup { group: parent.to_owned(), cores: all });
        }
        if all.len() < 2 {
            return Err(HoldRefusal::NoCoreLeft { group: parent.to_owned(), cores: all });
        }
        let enabled = !has(parent, "cgroup.subtree_control");
        Ok(Self { core, parent: parent.to_owned(), group, home: home.to_owned(), enabled })
    }

    pub(super) fn make(&mut self, tree: &dyn Tree) -> Result<(), HoldRefusal> {
        if self.enabled {
            write(tree, &self.parent.join("cgroup.subtree_control"), "+cpuset")?;
        }
        make(tree, &mut self.group)
    }

    pub(super) fn fill(&self, tree: &dyn Tree) -> Result<(), HoldRefusal> {
        let core = self.core.to_string();
        write(tree, &self.group.file("cpuset.cpus"), &core)?;
        let exclusive = self.group.file("cpuset.cpus.exclusive");
        // Older kernels take the cores of a partition from `cpuset.cpus` alone.
        if tree.read(&exclusive).is_ok() {
            write(tree, &exclusive, &core)?;
        }
        write(tree, &self.group.file("cpuset.cpus.partition"), "root")?;
        self.verify(tree)
    }

    /// Checks that the group is a partition. The kernel may revoke it later, for example when its
    /// core goes offline.
    pub(super) fn verify(&self, tree: &dyn Tree) -> Result<(), HoldRefusal> {
        let file = self.group.file("cpuset.cpus.partition");
        let said = tree.read(&file).map_err(|source| HoldRefusal::of("read", &file, source))?;
        match said.as_str() {
            "root" => Ok(()),
            _ => Err(HoldRefusal::Invalid { group: self.group.path.clone(), said }),
        }
    }

    pub(super) fn undo(&self, tree: &dyn Tree) -> Result<Vec<String>, HoldRefusal> {
        let targets = [self.home.as_path(), self.parent.as_path()];
        let mut did: Vec<String> =
            dismantle(tree, &self.group, "cgroup.procs", &targets)?.into_iter().collect();
        if self.enabled && !self.is_used_by_others(tree) {
            let file = self.parent.join("cgroup.subtree_control");
            match tree.read(&file) {
                Ok(all) if all.split(' ').any(|one| one == "cpuset") => {
                    write(tree, &file, "-cpuset")?;
                    did.push(format!(
                        "disabled the cpuset controller for the groups of {} again",
                        self.parent.display()
                    ));
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(HoldRefusal::of("read", &file, source)),
            }
        }
        Ok(did)
    }

    /// Returns true if another group has cores, which it would lose with the controller.
    fn is_used_by_others(&self, tree: &dyn Tree) -> bool {
        let has_cores = |group: &PathBuf| {
            tree.read(&group.join("cpuset.cpus")).is_ok_and(|cores| !cores.is_empty())
        };
        // If the groups cannot be listed, keep the controller.
        tree.groups(&self.parent).map_or(true, |groups| groups.iter().any(has_cores))
    }
}

/// Returns true if a partition can be made in the group: it is a partition root without processes.
/// The topmost group always is, even with processes; it alone has no type.
fn is_root(tree: &dyn Tree, group: &Path) -> bool {
    if tree.read(&group.join("cgroup.type")).is_err() {
        return true;
    }
    let partition = tree.read(&group.join("cpuset.cpus.partition"));
    let is_partition = partition.is_ok_and(|said| matches!(said.as_str(), "root" | "isolated"));
    is_partition && tree.read(&group.join("cgroup.procs")).is_ok_and(|tasks| tasks.is_empty())
}
