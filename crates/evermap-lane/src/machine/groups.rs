//! Control groups of a process, and the directories of their files.
//!
//! Both versions may be mounted, with each controller in one of them. In a container the kernel may
//! name a group by its path on the host while only a part of the tree is mounted; the root of the
//! mount shows which part.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use evermap_observe::proc::{Mount, memberships, mounts};
use serde::Serialize;

use super::roots::{joined, text};
use super::{CpuList, Roots};

/// Control group of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Group {
    /// Path in `/proc/PID/cgroup`.
    pub path: PathBuf,
    /// Mount point of the tree.
    pub mount: PathBuf,
    /// Directory of the group's files. The mount point if the path is not visible: a container's
    /// group is the root of its mount.
    pub directory: PathBuf,
    /// The tree is mounted read-only, as in most containers.
    pub is_read_only: bool,
}

impl Group {
    /// Group with this directory in a tree mounted at `mount`.
    #[cfg(test)]
    pub(crate) fn of_test(mount: &Path, directory: &Path) -> Self {
        let path = Path::new("/").join(directory.strip_prefix(mount).unwrap_or(directory));
        Self { path, mount: mount.to_owned(), directory: directory.to_owned(), is_read_only: false }
    }

    /// Text of one of its files, without surrounding blanks. `None` if it is unreadable.
    pub fn read(&self, name: &str) -> Option<String> {
        text(&self.directory.join(name)).ok().map(|text| text.trim().to_owned())
    }
}

/// All control groups of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Groups {
    /// Mounted groups of version 1, by controller (`cpu`, `cpuset`).
    pub v1: BTreeMap<String, Group>,
    /// Group of version 2, if that is mounted.
    pub v2: Option<Group>,
}

impl Groups {
    /// Groups of this process. Empty if `/proc` does not list them.
    pub fn detect_in(roots: &Roots) -> Self {
        let own = roots.proc_text("self/cgroup").unwrap_or_default();
        Self::parse(roots, &own)
    }

    /// Groups of another process. `None` if it has ended.
    pub fn of_process(roots: &Roots, process: u32) -> Option<Self> {
        let own = roots.proc_text(format!("{process}/cgroup")).ok()?;
        Some(Self::parse(roots, &own))
    }

    fn parse(roots: &Roots, own: &str) -> Self {
        let all = mounts(&roots.proc_text("self/mountinfo").unwrap_or_default());
        let mut groups = Groups::default();
        for own in memberships(own) {
            let path = own.path;
            if own.controllers.is_none() {
                groups.v2 =
                    found(roots, path, all.iter().filter(|mount| mount.system == "cgroup2"));
            }
            for controller in own.controllers() {
                let mounts =
                    all.iter().filter(|mount| mount.system == "cgroup" && mount.has(controller));
                if let Some(group) = found(roots, path, mounts) {
                    groups.v1.insert(controller.to_owned(), group);
                }
            }
        }
        groups
    }

    /// Cores of the process' cpuset, with the file that lists them. `None` without cpusets.
    pub fn cpuset(&self) -> Option<(PathBuf, CpuList)> {
        let of = |group: &Group, names: &[&str]| {
            names.iter().find_map(|name| {
                let cores: CpuList = group.read(name)?.parse().ok()?;
                (!cores.is_empty()).then(|| (group.directory.join(name), cores))
            })
        };
        let v1 = self.v1.get("cpuset");
        v1.and_then(|group| of(group, &["cpuset.effective_cpus", "cpuset.cpus"]))
            .or_else(|| of(self.v2.as_ref()?, &["cpuset.cpus.effective"]))
    }

    /// Microseconds of each period that real-time programs in the process' `cpu` group of version 1
    /// may run, with the file that says so. `None` if there is no such limit. With 0, no process of
    /// the group can be real-time, not even root's.
    pub fn real_time_runtime_us(&self) -> Option<(PathBuf, i64)> {
        let group = self.v1.get("cpu")?;
        let name = "cpu.rt_runtime_us";
        Some((group.directory.join(name), group.read(name)?.parse().ok()?))
    }
}

/// Finds a group in the first mount that shows its path, or else returns the root of the first
/// mount.
fn found<'a>(roots: &Roots, path: &str, mounts: impl Iterator<Item = &'a Mount>) -> Option<Group> {
    let path = Path::new(path);
    let mut otherwise = None;
    for mount in mounts {
        let at = roots.resolve(&mount.at);
        let group = |directory: PathBuf| Group {
            path: path.to_owned(),
            mount: at.clone(),
            directory,
            is_read_only: mount.has("ro"),
        };
        if let Some(directory) = below(&mount.root, path).map(|rest| joined(&at, rest))
            && directory.is_dir()
        {
            return Some(group(directory));
        }
        otherwise.get_or_insert_with(|| group(at.clone()));
    }
    otherwise
}

/// Part of a group's path below the root of a mount. Paths with `..` are outside of this process'
/// view.
fn below<'a>(root: &Path, path: &'a Path) -> Option<&'a Path> {
    let is_outside = |path: &Path| path.components().any(|part| part == Component::ParentDir);
    if is_outside(path) || is_outside(root) {
        return None;
    }
    path.strip_prefix(root).ok()
}
