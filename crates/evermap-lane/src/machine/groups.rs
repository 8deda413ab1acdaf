//! In which control groups a process is, and where their files are.
//!
//! Both versions may be there at once, each controller in one of them. In a container the kernel may name a group by its path on the
//! host while only a part of the tree is mounted: the mount's own root says which.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use serde::Serialize;

use super::mounts::{self, Mount};
use super::roots::{joined, text};
use super::{CpuList, Roots};

/// A control group that a process is in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Group {
    /// Its path as `/proc/PID/cgroup` has it.
    pub path: PathBuf,
    /// Where its tree is mounted.
    pub mount: PathBuf,
    /// Where its files are. The mount itself if the path leads to nothing that can be seen: a container's own group is its root.
    pub directory: PathBuf,
    /// Whether the tree is mounted read-only, as in most containers.
    pub is_read_only: bool,
}

impl Group {
    /// The group in this directory of a tree that is mounted there.
    #[cfg(test)]
    pub(crate) fn of_test(mount: &Path, directory: &Path) -> Self {
        let path = Path::new("/").join(directory.strip_prefix(mount).unwrap_or(directory));
        Self { path, mount: mount.to_owned(), directory: directory.to_owned(), is_read_only: false }
    }

    /// One of its files, without blanks around its text; none if it cannot be read.
    pub fn read(&self, name: &str) -> Option<String> {
        text(&self.directory.join(name)).ok().map(|text| text.trim().to_owned())
    }
}

/// All control groups of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Groups {
    /// By controller (`cpu`, `cpuset`), those of version 1 that are mounted.
    pub v1: BTreeMap<String, Group>,
    /// That of version 2, if it is mounted.
    pub v2: Option<Group>,
}

impl Groups {
    /// Those of this process. Where `/proc` does not tell there are none.
    pub fn look_in(roots: &Roots) -> Self {
        let own = roots.proc_text("self/cgroup").unwrap_or_default();
        Self::of_text(roots, &own)
    }

    /// Those of another process; none once it is gone.
    pub fn of_process(roots: &Roots, process: u32) -> Option<Self> {
        let own = roots.proc_text(format!("{process}/cgroup")).ok()?;
        Some(Self::of_text(roots, &own))
    }

    fn of_text(roots: &Roots, own: &str) -> Self {
        let all = mounts::parse(&roots.proc_text("self/mountinfo").unwrap_or_default());
        let mut groups = Groups::default();
        for line in own.lines() {
            let mut parts = line.splitn(3, ':');
            let (Some(number), Some(controllers), Some(path)) =
                (parts.next(), parts.next(), parts.next())
            else {
                continue;
            };
            if number == "0" && controllers.is_empty() {
                groups.v2 =
                    found(roots, path, all.iter().filter(|mount| mount.system == "cgroup2"));
                continue;
            }
            for controller in controllers.split(',').filter(|controller| !controller.is_empty()) {
                let mounts =
                    all.iter().filter(|mount| mount.system == "cgroup" && mount.has(controller));
                if let Some(group) = found(roots, path, mounts) {
                    groups.v1.insert(controller.to_owned(), group);
                }
            }
        }
        groups
    }

    /// The cores that the process' cpuset leaves it, with the file that says so; none without cpusets.
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

    /// Microseconds of each period that real-time programs of the process' `cpu` group of version 1 get, with the file that says so; none
    /// where groups have no such limit. With 0, nobody in it can be real-time, root neither.
    pub fn real_time_runtime_us(&self) -> Option<(PathBuf, i64)> {
        let group = self.v1.get("cpu")?;
        let name = "cpu.rt_runtime_us";
        Some((group.directory.join(name), group.read(name)?.parse().ok()?))
    }
}

/// Where the group of this path is, by the first mount that shows it; else the root of the first that there is.
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

/// The part of a group's path that is below what is mounted. Paths with `..` are outside of what this process sees.
fn below<'a>(root: &Path, path: &'a Path) -> Option<&'a Path> {
    let is_outside = |path: &Path| path.components().any(|part| part == Component::ParentDir);
    if is_outside(path) || is_outside(root) {
        return None;
    }
    path.strip_prefix(root).ok()
}
