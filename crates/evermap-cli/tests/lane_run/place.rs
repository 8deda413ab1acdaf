//! A temporary state directory for a test, and lanes in it that end with the test.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::common::Ran;
use crate::system::{
    CPUSETS, TIMEOUT, WORK_MASK, cores, groups, json, kill, text, wait_for, work_mask,
};

/// Promised maximum time until a lane is undone.
pub const UNDONE_MAX: Duration = Duration::from_secs(1);
pub const LEND: &str = "[app]\nfps = 24\n";
pub const HOLD: &str = "[app]\nfps = 24\nshare = \"hold\"\n";
/// Lends the core, and keeps the kernel's unbound work off it.
pub const AWAY: &str = "[app]\nfps = 24\nworkqueues = \"away\"\n";
pub const SLEEP: [&str; 2] = ["sleep", "1000"];

/// Makes three tests of each function: for a lane that lends its core and, if the system allows it,
/// for one that holds it and one that keeps the kernel's unbound work off it.
macro_rules! for_each_policy {
    ($($claim:ident),+ $(,)?) => {$(
        mod $claim {
            use $crate::place::{AWAY, HOLD, LEND, Place};

            #[test]
            fn lend() {
                super::$claim(&Place::new(), LEND);
            }

            #[test]
            fn hold() {
                if let Some(place) = Place::alone() {
                    super::$claim(&place, HOLD);
                }
            }

            #[test]
            fn away() {
                if let Some(place) = Place::with_workqueues() {
                    super::$claim(&place, AWAY);
                }
            }
        }
    )+};
}

/// A state directory, and the right to the machine's cores.
pub struct Place {
    directory: tempfile::TempDir,
    _turn: File,
    cores: BTreeSet<PathBuf>,
    /// Cores of the kernel's unbound work without a lane.
    work: Option<String>,
}

impl Place {
    /// Makes a place for lanes that lend their cores.
    pub fn new() -> Self {
        Self::with(|turn| turn.lock_shared().unwrap())
    }

    /// Makes a place for lanes that hold a core. No lane of another test runs at the same time.
    /// Returns `None` if this process cannot write cpusets of version 1.
    pub fn alone() -> Option<Self> {
        let is_able = rustix::process::geteuid().is_root()
            && fs::read_to_string(format!("{CPUSETS}/cpuset.cpu_exclusive")).is_ok()
            && cores().len() > 1;
        if !is_able {
            eprintln!(
                "skipped: holding a core by cpusets of version 1 needs them, root and two cores"
            );
            return None;
        }
        let place = Self::with(|turn| turn.lock().unwrap());
        assert!(groups().is_empty(), "another lane holds a core: {:?}", groups());
        Some(place)
    }

    /// Makes a place for lanes that keep the kernel's unbound work off their core. Returns `None`
    /// if the system does not allow that.
    pub fn with_workqueues() -> Option<Self> {
        let is_able = rustix::process::geteuid().is_root()
            && File::options().write(true).open(WORK_MASK).is_ok()
            && cores().len() > 1;
        if !is_able {
            eprintln!(
                "skipped: keeping the kernel's work away needs {WORK_MASK}, root and two cores"
            );
            return None;
        }
        let mut place = Self::with(|turn| turn.lock().unwrap());
        place.work = work_mask();
        Some(place)
    }

    fn with(lock: impl FnOnce(&File)) -> Self {
        let path = "/tmp/evermap-lane-tests.lock";
        let turn = File::options().create(true).truncate(false).write(true).open(path).unwrap();
        lock(&turn);
        let directory = tempfile::tempdir().unwrap();
        Self { directory, _turn: turn, cores: groups(), work: None }
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn evermap(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_evermap"));
        command.arg("lane").args(arguments).arg("--state").arg(self.path("state"));
        command.stdin(Stdio::null());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.evermap(arguments).output().unwrap())
    }

    /// Runs a lane to its end. Returns also its report.
    pub fn ended(&self, policy: &str, command: &[impl AsRef<OsStr>]) -> (Ran, Value) {
        let ran = Ran::of(self.lane(policy, command).output().unwrap());
        (ran, self.report())
    }

    /// Returns the report of the last lane, or null if there is none.
    pub fn report(&self) -> Value {
        json(&self.path("report.json")).unwrap_or_default()
    }

    pub fn lane(&self, policy: &str, command: &[impl AsRef<OsStr>]) -> Command {
        fs::write(self.path("policy.toml"), policy).unwrap();
        let mut lane = self.evermap(&["run"]);
        lane.arg("--policy").arg(self.path("policy.toml"));
        lane.arg("--report").arg(self.path("report.json"));
        lane.arg("--").args(command).stdout(Stdio::piped()).stderr(Stdio::piped());
        lane
    }

    /// Starts a lane, and waits until its program runs.
    pub fn start(&self, policy: &str, command: &[impl AsRef<OsStr>]) -> Lane<'_> {
        let child = self.lane(policy, command).spawn().unwrap();
        let mut lane = Lane { _place: self, child, program: 0, guardian: 0 };
        let name = Path::new(&command[0]).file_name().unwrap().to_string_lossy();
        let of_comm: String = name.chars().take(15).collect();
        wait_for("the program to run", TIMEOUT, || {
            let journal = self.journal();
            let pid = |who: &str| journal[who]["pid"].as_u64().unwrap_or(0) as u32;
            (lane.program, lane.guardian) = (pid("program"), pid("guardian"));
            lane.program != 0 && text(lane.program, "comm").trim() == of_comm
        });
        assert!(
            self.work.is_none() || work_mask() != self.work,
            "the kernel's work is still on the core"
        );
        lane
    }

    pub fn journals(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path("state/lanes")).into_iter().flatten().flatten();
        entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|end| end == "json"))
            .collect()
    }

    /// Returns the journal of the only lane, or null if there is none.
    pub fn journal(&self) -> Value {
        self.journals().first().and_then(|path| json(path)).unwrap_or_default()
    }

    /// Returns true if no journals, claims and groups are left, and the kernel's work is on the
    /// same cores as before.
    pub fn is_clean(&self) -> bool {
        let is_work_back = self.work.is_none() || work_mask() == self.work;
        self.journals().is_empty()
            && self.claimed().is_empty()
            && groups() == self.cores
            && is_work_back
    }

    fn claimed(&self) -> Vec<Value> {
        self.status()["claimed"].as_array().unwrap().clone()
    }

    pub fn status(&self) -> Value {
        serde_json::from_str(&self.run(&["status", "--json"]).out).unwrap()
    }

    /// Waits for up to a second until the lane is undone.
    pub fn wait_until_undone(&self, what: &str) {
        wait_for(what, UNDONE_MAX, || self.is_clean());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(self.evermap(&["undo"]).output());
        if let Some(work) = self.work.take().filter(|work| work_mask().as_ref() != Some(work)) {
            eprintln!("left behind: {WORK_MASK}");
            drop(fs::write(WORK_MASK, work));
        }
        for group in groups().difference(&self.cores) {
            eprintln!("left behind: {}", group.display());
            for task in fs::read_to_string(group.join("tasks")).unwrap_or_default().lines() {
                drop(fs::write(format!("{CPUSETS}/tasks"), task));
            }
            drop(fs::remove_dir(group));
        }
    }
}

/// A running lane. Dropping it kills it with its program and its guardian, before the directory is
/// removed.
pub struct Lane<'a> {
    _place: &'a Place,
    pub child: Child,
    pub program: u32,
    pub guardian: u32,
}

impl Lane<'_> {
    /// Waits for the end of the lane.
    pub fn wait(mut self) -> Ran {
        wait_for("the lane to end", TIMEOUT, || self.child.try_wait().unwrap().is_some());
        let code = self.child.wait().unwrap().code().unwrap_or(-1);
        let out = std::io::read_to_string(self.child.stdout.take().unwrap()).unwrap();
        let err = std::io::read_to_string(self.child.stderr.take().unwrap()).unwrap();
        Ran { code, out, err }
    }
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        for pid in [self.program, self.guardian] {
            kill(pid);
        }
    }
}
