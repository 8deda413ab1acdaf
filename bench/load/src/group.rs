//! A control group that limits memory: for one load, gone afterwards, and undone by the guard if this run is killed.

use std::path::{Path, PathBuf};

use common::Outcome;
use common::guard::{Guard, remove_group};

/// Where version 1 has its memory controller, and version 2 everything.
const FIRST: &str = "/sys/fs/cgroup/memory";
const SECOND: &str = "/sys/fs/cgroup";

pub struct Group {
    folder: PathBuf,
}

impl Group {
    /// A group of this much memory, or a word why there can't be one.
    pub fn new(guard: &mut Guard, limit_bytes: u64) -> Outcome<Group> {
        let (parent, limit) = place().ok_or(
            "no memory controller for control groups is here (version 1: /sys/fs/cgroup/memory; version 2: `memory` \
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

    /// Where a process writes that it joins.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Err(error) = remove_group(&self.folder) {
            eprintln!("{} is left: {error}", self.folder.display());
        }
    }
}

/// Below which folder, and the name of the limit there.
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
    fn a_group_is_gone_with_its_value() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("group");
        std::fs::create_dir(&folder).unwrap();
        drop(Group { folder: folder.clone() });
        assert!(!folder.exists());
    }
}
