//! Simulated kernel with control groups, for tests: the rules for cpusets of both versions, as the
//! kernel's documentation and error codes define them. It can stop at any change: all later changes
//! fail, as if the lane had been killed there.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::tree::Tree;
use crate::machine::{CpuList, Group, Groups};

pub(super) const MOUNT: &str = "/cg";

#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    inode: u64,
    cpus: String,
    mems: String,
    is_exclusive: bool,
    /// Version 2: requested partition type.
    partition: String,
    /// Version 2: enables cpusets for its groups.
    enables: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Task {
    group: PathBuf,
    is_kernel_thread: bool,
    is_bound: bool,
    /// Number of times that it starts another task just before it is moved.
    forks: u32,
    /// The task is ending, and ends after this number of moves, which the kernel reports as
    /// successful.
    ends_after: Option<u32>,
}

#[derive(Debug)]
pub(super) struct Kernel {
    is_v2: bool,
    nodes: RefCell<BTreeMap<PathBuf, Node>>,
    tasks: RefCell<BTreeMap<u32, Task>>,
    next: Cell<u32>,
    /// Changes left before the crash point.
    pub(super) left: Cell<Option<usize>>,
    /// Error text of every partition, for tests of refusals.
    pub(super) partition_error: RefCell<Option<String>>,
    /// The user may change nothing.
    pub(super) is_read_only: Cell<bool>,
}

fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

impl Kernel {
    pub(super) fn new(is_v2: bool, cores: &str) -> Self {
        let kernel = Self {
            is_v2,
            nodes: RefCell::default(),
            tasks: RefCell::default(),
            next: Cell::new(1),
            left: Cell::new(None),
            partition_error: RefCell::new(None),
            is_read_only: Cell::new(false),
        };
        kernel.group("", cores);
        let mut nodes = kernel.nodes.borrow_mut();
        let root = nodes.get_mut(Path::new(MOUNT)).unwrap();
        (root.is_exclusive, root.mems, root.partition) = (true, "0".into(), "root".into());
        drop(nodes);
        kernel
    }

    /// Adds a group of another program.
    pub(super) fn group(&self, path: &str, cpus: &str) -> PathBuf {
        let path = Path::new(MOUNT).join(path);
        let path: PathBuf = path.components().collect();
        let node = Node {
            inode: u64::from(self.number()),
            cpus: cpus.into(),
            mems: String::new(),
            is_exclusive: false,
            partition: "member".into(),
            enables: false,
        };
        self.nodes.borrow_mut().insert(path.clone(), node);
        path
    }

    pub(super) fn task(&self, group: &Path) -> u32 {
        self.add(group, false, false, 0)
    }

    pub(super) fn task_that_forks(&self, group: &Path, times: u32) -> u32 {
        self.add(group, false, false, times)
    }

    pub(super) fn kernel_thread(&self, group: &Path, is_bound: bool) -> u32 {
        self.add(group, true, is_bound, 0)
    }

    /// Adds an ordinary task that the kernel refuses to move.
    pub(super) fn bound(&self, group: &Path) -> u32 {
        self.add(group, false, true, 0)
    }

    /// Makes the task end after this number of moves.
    pub(super) fn end(&self, task: u32, after: u32) {
        self.tasks.borrow_mut().get_mut(&task).unwrap().ends_after = Some(after);
    }

    fn add(&self, group: &Path, is_kernel_thread: bool, is_bound: bool, forks: u32) -> u32 {
        let id = self.number();
        let ends_after = None;
        let task = Task { group: group.to_owned(), is_kernel_thread, is_bound, forks, ends_after };
        self.tasks.borrow_mut().insert(id, task);
        id
    }

    pub(super) fn exclusive(&self, group: &Path) {
        self.nodes.borrow_mut().get_mut(group).unwrap().is_exclusive = true;
    }

    pub(super) fn is_in(&self, task: u32) -> PathBuf {
        self.tasks.borrow()[&task].group.clone()
    }

    /// Complete state for comparison, with these tasks only.
    pub(super) fn state(&self, of: &[u32]) -> String {
        let tasks = self.tasks.borrow();
        let own: Vec<_> = of.iter().map(|task| (task, &tasks[task].group)).collect();
        format!("{:?} {own:?}", self.nodes.borrow())
    }

    pub(super) fn all_tasks(&self) -> Vec<u32> {
        self.tasks.borrow().keys().copied().collect()
    }

    pub(super) fn groups_of(&self, own: &Path) -> Groups {
        let group = Group::of_test(Path::new(MOUNT), own);
        let mut groups = Groups::default();
        match self.is_v2 {
            true => groups.v2 = Some(group),
            false => drop(groups.v1.insert("cpuset".into(), group)),
        }
        groups
    }

    fn number(&self) -> u32 {
        self.next.set(self.next.get() + 1);
        self.next.get()
    }

    /// Counts a change. Fails after the crash point.
    fn change(&self) -> io::Result<()> {
        if self.is_read_only.get() {
            return Err(errno(libc::EACCES));
        }
        match self.left.get() {
            Some(0) => Err(errno(libc::EIO)),
            Some(left) => {
                self.left.set(Some(left - 1));
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn cpus(text: &str) -> CpuList {
        text.parse().unwrap_or_default()
    }

    fn is_root(group: &Path) -> bool {
        group == Path::new(MOUNT)
    }

    fn siblings(&self, group: &Path) -> Vec<(PathBuf, Node)> {
        let nodes = self.nodes.borrow();
        let beside = |path: &Path| path.parent() == group.parent() && path != group;
        nodes
            .iter()
            .filter(|(path, _)| beside(path))
            .map(|(path, node)| (path.clone(), node.clone()))
            .collect()
    }

    fn has_tasks(&self, group: &Path) -> bool {
        self.tasks.borrow().values().any(|task| task.group == group)
    }

    /// Returns true if the group has cpuset files.
    fn has_cpuset(&self, group: &Path) -> bool {
        let parent = group.parent().map(Path::to_owned).unwrap_or_default();
        !self.is_v2
            || Self::is_root(group)
            || self.nodes.borrow().get(&parent).is_some_and(|node| node.enables)
    }

    fn effective(&self, group: &Path) -> String {
        let nodes = self.nodes.borrow();
        let own = &nodes[group].cpus;
        let own = match own.is_empty() && !Self::is_root(group) {
            true => return self.effective(group.parent().unwrap()),
            false => Self::cpus(own),
        };
        let given = nodes.iter().filter(|(path, node)| {
            path.parent() == Some(group) && self.is_v2 && self.said(path, node) == "root"
        });
        given.fold(own, |left, (_, node)| left.without(&Self::cpus(&node.cpus))).to_string()
    }

    fn said(&self, group: &Path, node: &Node) -> String {
        if node.partition != "root" || Self::is_root(group) {
            return node.partition.clone();
        }
        let nodes = self.nodes.borrow();
        let parent = group.parent().unwrap();
        let own = Self::cpus(&node.cpus);
        let overlaps = self
            .siblings(group)
            .iter()
            .any(|(_, other)| !Self::cpus(&other.cpus).and(&own).is_empty());
        let why = match &*self.partition_error.borrow() {
            Some(why) => Some(why.clone()),
            None if nodes[parent].partition != "root" => {
                Some("Parent is not a partition root".into())
            }
            None if overlaps => Some("Cpu list in cpuset.cpus not exclusive".into()),
            None if own == Self::cpus(&nodes[parent].cpus) => {
                Some("Parent unable to distribute cpu downstream".into())
            }
            None => None,
        };
        why.map_or("root".into(), |why| format!("root invalid ({why})"))
    }

    fn attach(&self, group: &Path, text: &str) -> io::Result<()> {
        let id: u32 = text.parse().map_err(|_| errno(libc::EINVAL))?;
        let task = self.tasks.borrow().get(&id).cloned().ok_or_else(|| errno(libc::ESRCH))?;
        let node = self.nodes.borrow()[group].clone();
        if task.is_bound {
            return Err(errno(libc::EINVAL));
        }
        if !self.is_v2 && (node.cpus.is_empty() || node.mems.is_empty()) {
            return Err(errno(libc::ENOSPC));
        }
        if self.is_v2 && node.enables && !Self::is_root(group) {
            return Err(errno(libc::EBUSY));
        }
        match task.ends_after {
            Some(0) => {
                self.tasks.borrow_mut().remove(&id);
                return Ok(());
            }
            Some(left) => {
                self.end(id, left - 1);
                return Ok(());
            }
            None => {}
        }
        if task.forks > 0 && task.group != group {
            self.add(&task.group, task.is_kernel_thread, false, task.forks - 1);
        }
        let mut tasks = self.tasks.borrow_mut();
        let task = tasks.get_mut(&id).unwrap();
        (task.group, task.forks) = (group.to_owned(), 0);
        Ok(())
    }

    fn set_cpus(&self, group: &Path, text: &str) -> io::Result<()> {
        let wish: CpuList = text.parse().map_err(|_| errno(libc::EINVAL))?;
        let parent = Self::cpus(&self.nodes.borrow()[group.parent().unwrap()].cpus);
        if !self.is_v2 && !wish.without(&parent).is_empty() {
            return Err(errno(libc::EACCES));
        }
        let conflicts = |(_, other): &(PathBuf, Node)| {
            other.is_exclusive && !Self::cpus(&other.cpus).and(&wish).is_empty()
        };
        if !self.is_v2 && self.siblings(group).iter().any(conflicts) {
            return Err(errno(libc::EINVAL));
        }
        self.nodes.borrow_mut().get_mut(group).unwrap().cpus = text.into();
        Ok(())
    }

    fn set_exclusive(&self, group: &Path) -> io::Result<()> {
        let own = Self::cpus(&self.nodes.borrow()[group].cpus);
        if !self.nodes.borrow()[group.parent().unwrap()].is_exclusive {
            return Err(errno(libc::EACCES));
        }
        let overlaps = |(_, other): &(PathBuf, Node)| !Self::cpus(&other.cpus).and(&own).is_empty();
        if self.siblings(group).iter().any(overlaps) {
            return Err(errno(libc::EINVAL));
        }
        self.nodes.borrow_mut().get_mut(group).unwrap().is_exclusive = true;
        Ok(())
    }

    fn set_subtree(&self, group: &Path, text: &str) -> io::Result<()> {
        if text == "+cpuset" && !Self::is_root(group) && self.has_tasks(group) {
            return Err(errno(libc::EBUSY));
        }
        self.nodes.borrow_mut().get_mut(group).unwrap().enables = text == "+cpuset";
        Ok(())
    }
}

impl Tree for Kernel {
    fn read(&self, file: &Path) -> io::Result<String> {
        let (group, name) = (file.parent().unwrap(), file.file_name().unwrap().to_str().unwrap());
        let node = self.nodes.borrow().get(group).cloned().ok_or_else(|| errno(libc::ENOENT))?;
        let has_cpuset = self.has_cpuset(group);
        let list = |group: &Path| {
            let tasks = self.tasks.borrow();
            let there = tasks.iter().filter(|(_, task)| task.group == group);
            there.map(|(id, _)| id.to_string()).collect::<Vec<_>>().join("\n")
        };
        let controllers = |is_there| Ok(if is_there { "cpuset cpu" } else { "cpu" }.to_string());
        match (name, self.is_v2) {
            ("cgroup.procs", _) | ("tasks", false) => Ok(list(group)),
            ("cpuset.cpus", false) => Ok(node.cpus),
            ("cpuset.mems", false) => Ok(node.mems),
            ("cpuset.effective_cpus", false) => Ok(self.effective(group)),
            ("cpuset.cpu_exclusive", false) => Ok(u8::from(node.is_exclusive).to_string()),
            ("cgroup.type", true) if !Self::is_root(group) => Ok("domain".into()),
            ("cgroup.controllers", true) => controllers(has_cpuset),
            ("cgroup.subtree_control", true) => controllers(node.enables),
            ("cpuset.cpus.effective", true) if has_cpuset => Ok(self.effective(group)),
            ("cpuset.cpus" | "cpuset.cpus.exclusive", true)
                if has_cpuset && !Self::is_root(group) =>
            {
                Ok(node.cpus)
            }
            ("cpuset.cpus.partition", true) if has_cpuset && !Self::is_root(group) => {
                Ok(self.said(group, &node))
            }
            _ => Err(errno(libc::ENOENT)),
        }
    }

    fn write(&self, file: &Path, text: &str) -> io::Result<()> {
        let (group, name) = (file.parent().unwrap(), file.file_name().unwrap().to_str().unwrap());
        if !self.nodes.borrow().contains_key(group) {
            return Err(errno(libc::ENOENT));
        }
        self.change()?;
        match (name, self.is_v2) {
            ("cgroup.procs", _) | ("tasks", false) => self.attach(group, text),
            ("cpuset.cpus", _) if self.has_cpuset(group) => self.set_cpus(group, text),
            ("cpuset.cpus.exclusive", true) if self.has_cpuset(group) => Ok(()),
            ("cpuset.cpu_exclusive", false) => self.set_exclusive(group),
            ("cgroup.subtree_control", true) => self.set_subtree(group, text),
            ("cpuset.mems", false) => {
                self.nodes.borrow_mut().get_mut(group).unwrap().mems = text.into();
                Ok(())
            }
            ("cpuset.cpus.partition", true) if self.has_cpuset(group) => {
                self.nodes.borrow_mut().get_mut(group).unwrap().partition = text.into();
                Ok(())
            }
            _ => Err(errno(libc::ENOENT)),
        }
    }

    fn make(&self, group: &Path) -> io::Result<()> {
        self.change()?;
        if self.nodes.borrow().contains_key(group) {
            return Err(errno(libc::EEXIST));
        }
        self.group(group.strip_prefix(MOUNT).unwrap().to_str().unwrap(), "");
        Ok(())
    }

    fn remove(&self, group: &Path) -> io::Result<()> {
        if !self.nodes.borrow().contains_key(group) {
            return Err(errno(libc::ENOENT));
        }
        self.change()?;
        let has_groups = self.nodes.borrow().keys().any(|path| path.parent() == Some(group));
        if self.has_tasks(group) || has_groups {
            return Err(errno(libc::EBUSY));
        }
        self.nodes.borrow_mut().remove(group);
        Ok(())
    }

    fn groups(&self, group: &Path) -> io::Result<Vec<PathBuf>> {
        let nodes = self.nodes.borrow();
        Ok(nodes.keys().filter(|path| path.parent() == Some(group)).cloned().collect())
    }

    fn inode(&self, group: &Path) -> io::Result<u64> {
        self.nodes.borrow().get(group).map(|node| node.inode).ok_or_else(|| errno(libc::ENOENT))
    }

    fn is_kernel_thread(&self, task: u32) -> bool {
        self.tasks.borrow().get(&task).is_some_and(|task| task.is_kernel_thread)
    }
}
