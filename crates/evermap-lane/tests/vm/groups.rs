//! The machine's control groups and other processes in them, before, during and after a lane holds
//! a core.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use crate::lanes::{SPIN, affinity, bind, online, policy_of, processes, runs_on, text, wait_for};

/// Group settings to compare. Each version has some of them.
const SETTINGS: [&str; 8] = [
    "cgroup.subtree_control",
    "cpuset.cpus",
    "cpuset.cpus.effective",
    "cpuset.cpus.exclusive",
    "cpuset.cpus.partition",
    "cpuset.cpu_exclusive",
    "cpuset.effective_cpus",
    "cpuset.mems",
];

/// Number of programs that are always runnable. A sleeping program is reported on the core on which
/// it last ran.
const PENDING: usize = 2;

/// Hierarchy with the cpuset controller.
pub struct Hierarchy {
    pub mount: PathBuf,
    pub version: u32,
}

impl Hierarchy {
    /// Finds the hierarchy mounted by the machine's init program.
    pub fn find() -> Self {
        let v1 = Path::new("/sys/fs/cgroup/cpuset");
        if v1.join("cpuset.cpus").exists() {
            return Self { mount: v1.into(), version: 1 };
        }
        let mount = PathBuf::from("/sys/fs/cgroup");
        let controllers = fs::read_to_string(mount.join("cgroup.controllers")).unwrap();
        assert!(controllers.contains("cpuset"), "no cpusets: {controllers}");
        Self { mount, version: 2 }
    }

    fn groups(&self) -> BTreeSet<PathBuf> {
        let mut found = BTreeSet::from([self.mount.clone()]);
        let mut left = vec![self.mount.clone()];
        while let Some(group) = left.pop() {
            for entry in fs::read_dir(group).unwrap().flatten() {
                if entry.file_type().unwrap().is_dir() {
                    found.insert(entry.path());
                    left.push(entry.path());
                }
            }
        }
        found
    }

    /// Returns the groups created by lanes.
    pub fn of_lanes(&self) -> Vec<PathBuf> {
        let is_lanes = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("evermap-"))
        };
        self.groups().into_iter().filter(is_lanes).collect()
    }

    /// Returns all groups and their settings as text, to compare.
    pub fn settings(&self) -> String {
        let mut all = String::new();
        for group in self.groups() {
            all += &format!("{}\n", group.display());
            for name in SETTINGS {
                if let Ok(text) = fs::read_to_string(group.join(name)) {
                    all += &format!("  {name} {}\n", text.trim());
                }
            }
        }
        all
    }

    /// Creates a group that belongs to no lane.
    pub fn make(&self, name: &str) -> Group {
        let path = self.mount.join(name);
        fs::create_dir_all(&path).unwrap();
        if self.version == 1 {
            for name in ["cpuset.cpus", "cpuset.mems"] {
                let of_parent = fs::read_to_string(self.mount.join(name)).unwrap();
                fs::write(path.join(name), of_parent.trim()).unwrap();
            }
        }
        Group { path }
    }

    /// Returns the group of a process.
    pub fn of(&self, pid: u32) -> String {
        let text = text(pid, "cgroup");
        let own = text.lines().find(|line| match self.version {
            1 => line.contains(":cpuset:"),
            _ => line.starts_with("0::"),
        });
        own.and_then(|line| line.rsplit(':').next()).unwrap_or_default().to_owned()
    }
}

/// Group that belongs to no lane. Removed when dropped.
pub struct Group {
    pub path: PathBuf,
}

impl Group {
    pub fn take(&self, pid: u32) {
        fs::write(self.path.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        wait_for("the group to be empty", || fs::remove_dir(&self.path).is_ok());
    }
}

/// Other programs on the machine: some always runnable, one in its own group, and two bound to
/// cores.
pub struct Others {
    all: Vec<Child>,
    hierarchy: Hierarchy,
    // The group is dropped after its programs.
    _group: Option<Group>,
}

impl Others {
    /// Starts the programs. `core` is the core that a lane will hold.
    pub fn start(core: u32) -> Self {
        let hierarchy = Hierarchy::find();
        let program = |words: &[&str]| Command::new(words[0]).args(&words[1..]).spawn().unwrap();
        let mut all: Vec<Child> = (0..PENDING).map(|_| program(&SPIN)).collect();
        // With version 1, a group that has the core would prevent the hold.
        let group = (hierarchy.version == 2).then(|| hierarchy.make("others"));
        if let Some(group) = &group {
            let inside = program(&["sleep", "1000"]);
            group.take(inside.id());
            all.push(inside);
        }
        if keeps_affinity() {
            let others: BTreeSet<u32> = online().into_iter().filter(|one| *one != 0).collect();
            for cores in [others, BTreeSet::from([core])] {
                let bound = program(&["sleep", "1000"]);
                bind(Some(bound.id()), &cores);
                all.push(bound);
            }
        }
        Self { all, hierarchy, _group: group }
    }

    /// Returns the group, affinity and policy of each program, to compare.
    pub fn state(&self) -> Vec<(String, BTreeSet<u32>, Option<u32>)> {
        let pids = self.all.iter().map(Child::id);
        pids.map(|pid| (self.hierarchy.of(pid), affinity(pid), policy_of(pid))).collect()
    }

    /// Checks that only `program` may run on the core, and that no runnable program does.
    pub fn verify_exclusive(&self, core: u32, program: u32) {
        let on_core = |pid: &u32| *pid != program && affinity(*pid).contains(&core);
        let wrong: Vec<(u32, String)> = processes()
            .into_iter()
            .filter(on_core)
            .map(|pid| (pid, text(pid, "comm").trim().to_owned()))
            .collect();
        assert!(wrong.is_empty(), "these may run on core {core}: {wrong:?}");
        assert_eq!(affinity(program), BTreeSet::from([core]));
        for _ in 0..20 {
            for pid in self.all.iter().take(PENDING).map(Child::id) {
                assert_ne!(runs_on(pid), Some(core), "{pid} runs on the held core");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        for child in &mut self.all {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// Returns true if the kernel keeps a task's own affinity while its cpuset is narrower (Linux 6.2
/// and later).
fn keeps_affinity() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.trim().split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    let keeps = (numbers.next(), numbers.next()) >= (Some(6), Some(2));
    if !keeps {
        eprintln!(
            "omitting programs with their own affinity: Linux {} does not restore it",
            release.trim()
        );
    }
    keeps
}
