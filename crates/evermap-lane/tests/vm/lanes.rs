//! Starts lanes and observes them and other processes from outside: through journals, `/proc` and
//! the command's output.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use evermap_lane::guard::{StateDirectory, claimed};
use rustix::process::{Pid, Signal};
use rustix::thread::CpuSet;
use serde_json::Value;

pub const EVERMAP: &str = "/bin/evermap";
/// Generous timeout: the machine is emulated, and its host may be busy.
const TIMEOUT: Duration = Duration::from_secs(60);

pub const SLEEP: [&str; 2] = ["sleep", "1000"];
/// Shell loop that never sleeps.
pub const SPIN: [&str; 3] = ["sh", "-c", "while :; do :; done"];

/// Returns true on the machine booted by `make test-vm`. The tests must not change any other
/// machine.
pub fn is_machine() -> bool {
    let orders = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let is_it = orders.contains("evermap.job=");
    if !is_it {
        eprintln!("SKIPPED: runs inside the machine that make test-vm boots");
    }
    is_it
}

/// Test fixture with its own state directory.
pub struct Fixture {
    pub directory: tempfile::TempDir,
    pub state: StateDirectory,
}

/// Exit code and output of a command.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Fixture {
    /// Creates the fixture. Reports a skip and returns `None` on other machines.
    pub fn new() -> Option<Self> {
        is_machine().then(|| {
            let directory = tempfile::tempdir().unwrap();
            let state = StateDirectory::at(directory.path().join("state")).unwrap();
            Self { directory, state }
        })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn evermap(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(EVERMAP);
        command.arg("lane").args(arguments).arg("--state").arg(self.state.path());
        command.stdin(Stdio::null());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Ran {
        ran(&mut self.evermap(arguments))
    }

    pub fn lane(&self, policy: &str, command: &[&str]) -> Command {
        fs::write(self.path("policy.toml"), policy).unwrap();
        let mut lane = self.evermap(&["run"]);
        lane.arg("--policy").arg(self.path("policy.toml"));
        lane.arg("--report").arg(self.path("report.json"));
        lane.arg("--").args(command).stdout(Stdio::piped()).stderr(Stdio::piped());
        lane
    }

    /// Runs a lane to its end, and returns its report.
    pub fn ended(&self, policy: &str, command: &[&str]) -> (Ran, Value) {
        let ran = ran(&mut self.lane(policy, command));
        (ran, json(&self.path("report.json")).unwrap_or_default())
    }

    /// Starts a lane and waits until its program runs.
    pub fn start(&self, policy: &str, command: &[&str]) -> Lane {
        self.started(self.lane(policy, command), command[0])
    }

    /// Like [`Fixture::start`], for a prepared command whose program has this name.
    pub fn started(&self, mut command: Command, name: &str) -> Lane {
        let before: BTreeSet<PathBuf> = self.journals().into_iter().collect();
        let child = command.spawn().unwrap();
        let mut lane = Lane { child, program: 0, guardian: 0, core: 0 };
        wait_for("the program to run", || {
            let ended = lane.child.try_wait().unwrap();
            assert!(ended.is_none(), "the lane ended early: {:?}", output_of(&mut lane.child));
            let journals = self.journals();
            let own = journals.iter().find(|path| !before.contains(*path));
            let Some(journal) = own.and_then(|path| json(path)) else { return false };
            let number = |value: &Value| value.as_u64().unwrap_or(0) as u32;
            lane.program = number(&journal["program"]["pid"]);
            lane.guardian = number(&journal["guardian"]["pid"]);
            lane.core = number(&journal["core"]);
            lane.program != 0 && text(lane.program, "comm").trim() == name
        });
        lane
    }

    pub fn journals(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path("state/lanes")).into_iter().flatten().flatten();
        let is_journal = |path: &PathBuf| path.extension().is_some_and(|end| end == "json");
        entries.map(|entry| entry.path()).filter(is_journal).collect()
    }

    /// Returns true if no journal and no claim is left.
    pub fn is_clean(&self) -> bool {
        self.journals().is_empty() && claimed(&self.state).is_empty()
    }

    /// Undoes killed lanes with the command, and checks that a second run finds nothing.
    pub fn undo(&self) {
        let undone = self.run(&["undo"]);
        assert_eq!(undone.code, 0, "{undone:?}");
        assert!(undone.out.contains("undone"), "{undone:?}");
        assert!(self.is_clean(), "{:?}", self.journals());
        let again = self.run(&["undo"]);
        assert_eq!((again.code, again.out.as_str()), (0, "nothing was left behind\n"));
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        drop(self.evermap(&["undo"]).output());
    }
}

/// Running lane. Killed with its guardian and program when dropped.
pub struct Lane {
    pub child: Child,
    pub program: u32,
    pub guardian: u32,
    pub core: u32,
}

impl Lane {
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Kills lane, guardian and program together, so that none can react to the end of another.
    pub fn kill_all(&mut self) {
        let all = [self.child.id(), self.guardian, self.program];
        all.iter().for_each(|pid| send(*pid, Signal::STOP));
        all.iter().for_each(|pid| send(*pid, Signal::KILL));
        self.child.wait().unwrap();
        wait_for("all to be gone", || !all.iter().any(|pid| is_alive(*pid)));
    }

    pub fn ends(mut self) -> Ran {
        wait_for("the lane to end", || self.child.try_wait().unwrap().is_some());
        output_of(&mut self.child)
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        [self.program, self.guardian].into_iter().for_each(kill);
    }
}

/// Returns the exit code and the remaining output of a process that has ended.
fn output_of(child: &mut Child) -> Ran {
    let code = child.wait().unwrap().code().unwrap_or(-1);
    let out = child.stdout.take().map(|out| std::io::read_to_string(out).unwrap());
    let err = child.stderr.take().map(|err| std::io::read_to_string(err).unwrap());
    Ran { code, out: out.unwrap_or_default(), err: err.unwrap_or_default() }
}

pub fn ran(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ran {
        code: output.status.code().unwrap_or(-1),
        out: text(&output.stdout),
        err: text(&output.stderr),
    }
}

pub fn kill(pid: u32) {
    send(pid, Signal::KILL);
}

fn send(pid: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid as i32) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

pub fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < TIMEOUT, "waited {:?} for {what}", began.elapsed());
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn json(path: &Path) -> Option<Value> {
    serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
}

pub fn text(pid: u32, file: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default()
}

/// Returns the fields of `/proc/PID/stat` after the name, starting with the state, which is field
/// 3.
fn fields(pid: u32) -> Option<Vec<String>> {
    let stat = text(pid, "stat");
    let (_, fields) = stat.rsplit_once(") ")?;
    Some(fields.split_ascii_whitespace().map(str::to_owned).collect())
}

fn field(pid: u32, number: usize) -> Option<u32> {
    fields(pid)?.get(number - 3)?.parse().ok()
}

/// Returns the number of a process's scheduling policy: 0 is `SCHED_OTHER`, 1 is `SCHED_FIFO`.
pub fn policy_of(pid: u32) -> Option<u32> {
    field(pid, 41)
}

/// Returns the core on which the process runs or ran last.
pub fn runs_on(pid: u32) -> Option<u32> {
    field(pid, 39)
}

pub fn is_alive(pid: u32) -> bool {
    fields(pid).is_some_and(|fields| !fields[0].starts_with(['Z', 'X']))
}

fn is_of_kernel(pid: u32) -> bool {
    const PF_KTHREAD: u32 = 0x0020_0000;
    field(pid, 9).is_some_and(|flags| flags & PF_KTHREAD != 0)
}

/// Returns all processes that are alive, without kernel threads.
pub fn processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|pid| is_alive(*pid) && !is_of_kernel(*pid)).collect()
}

/// Returns the cores on which a process may run.
pub fn affinity(pid: u32) -> BTreeSet<u32> {
    let status = text(pid, "status");
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list(line.unwrap_or_default())
}

/// Parses a list of cores in the kernel's format.
pub fn list(text: &str) -> BTreeSet<u32> {
    let mut cores = BTreeSet::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        cores.extend(low.parse::<u32>().unwrap()..=high.parse().unwrap());
    }
    cores
}

/// Binds a process, or this thread, to cores.
pub fn bind(pid: Option<u32>, cores: &BTreeSet<u32>) {
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core as usize));
    let pid = pid.and_then(|pid| Pid::from_raw(pid as i32));
    rustix::thread::sched_setaffinity(pid, &set).unwrap();
}

/// Returns the online cores.
pub fn online() -> BTreeSet<u32> {
    list(&fs::read_to_string("/sys/devices/system/cpu/online").unwrap())
}

/// Returns true if a program has the policy and affinity of this process, as after its lane has
/// ended.
pub fn is_ordinary(pid: u32) -> bool {
    policy_of(pid) == Some(0) && affinity(pid) == affinity(std::process::id())
}
