//! Control group that limits the memory of one load. It is removed afterwards, by the guard if this
//! run is killed.

use std::path::{Path, PathBuf};

use harness::Outcome;
use harness::guard::{Guard, remove_group};

/// Memory controller of cgroup version 1, and root of version 2.
const FIRST: &str = "/sys/fs/cgroup/memory";
const SECOND: &str = "/sys/fs/cgroup";

pub struct Group {
    folder: PathBuf,
}

impl Group {
    /// Creates a group with this memory limit. The error says why that is not possible.
    pub fn new(guard: &mut Guard, limit_bytes: u64) -> Outcome<Group> {
        let (parent, limit) = place().ok_or(
                        "no memory controller for control groups (version 1: /sys/fs/cgroup/memory; version 2: `memory` \
                         in /sys/fs/cgroup/cgroup.subtree_control)",
        )?;
        let folder = parent.join(format!("evermap-bench-{}", std::process::id()));
        guard.group(&folder)?;
        let what = |error| format!("{}: {error}", folder.display());
        std::fs::create_dir(&folder).map_err(what)?;
        let group = Group { folder: folder.clone() };
        std::fs::write(folder.join(limit), limit_bytes.to_string()).map_err(what)?;
        Ok(group)
    }

    /// Folder whose `cgroup.procs` a process writes to join.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Err(error) = remove_group(&self.folder) {
            eprintln!("cannot remove {}: {error}", self.folder.display());
        }
    }
}

/// Returns the parent folder of groups, and the name of the limit's file.
fn place() -> Option<(&'static Path, &'static str)> {
    let first = Path::new(FIRST);
    if first.join("memory.limit_in_bytes").exists() {
        return Some((first, "memory.limit_in_bytes"));
    }
    let second = Path::new(SECOND);
    let controllers = std::fs::read_to_string(second.join("cgroup.subtree_control")).ok()?;
    let has_memory = controllers.split_whitespace().any(|controller| controller == "memory");
    has_memory.then_some((second, "memory.max"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_group_is_removed_on_drop() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("group");
        std::fs::create_dir(&folder).unwrap();
        drop(Group { folder: folder.clone() });
        assert!(!folder.exists());
    }
}
