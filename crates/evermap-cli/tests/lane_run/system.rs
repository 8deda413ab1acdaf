//! Reads the kernel's state of processes, cores and groups, and detects what this system allows.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde_json::Value;

pub const CPUSETS: &str = "/sys/fs/cgroup/cpuset";
/// Cores of the kernel's unbound workqueues.
pub const WORK_MASK: &str = "/sys/devices/virtual/workqueue/cpumask";
/// Timeout for events without a promised time, on a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// Waits until `is_true` returns true. Panics after `timeout` with `what` in the message.
pub fn wait_for(what: &str, timeout: Duration, mut is_true: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < timeout, "waited {:?} for {what}", start.elapsed());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Sends a signal to a process of this test, whose id comes from the test's own journal.
pub fn send(pid: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid as i32) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

pub fn kill(pid: u32) {
    send(pid, Signal::KILL);
}

pub fn json(path: &Path) -> Option<Value> {
    serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
}

/// Reads a file of a process in `/proc`. It may contain a program's name that is not UTF-8.
pub fn text(pid: u32, file: &str) -> String {
    let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the scheduling policy in the text of `/proc/PID/stat`: 0 is OTHER, 1 FIFO, 6 DEADLINE.
pub fn class(stat: &str) -> Option<u32> {
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(38)?.trim().parse().ok()
}

/// Returns the scheduling policy of a process or a thread.
pub fn policy_of(pid: u32) -> Option<u32> {
    class(&text(pid, "stat"))
}

pub fn is_alive(pid: u32) -> bool {
    let stat = text(pid, "stat");
    stat.rsplit_once(") ").is_some_and(|(_, fields)| !fields.starts_with(['Z', 'X']))
}

pub fn affinity(pid: u32) -> String {
    let status = text(pid, "status");
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.unwrap_or_default().trim().to_owned()
}

/// Returns true if a process has the ordinary policy, and may run on the same cores as this one.
pub fn is_ordinary(pid: u32) -> bool {
    policy_of(pid) == Some(0) && affinity(pid) == affinity(std::process::id())
}

pub fn cores() -> Vec<u32> {
    let all = affinity(std::process::id());
    let mut cores = Vec::new();
    for part in all.split(',') {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        cores.extend(low.parse::<u32>().unwrap()..=high.parse().unwrap());
    }
    cores
}

pub fn work_mask() -> Option<String> {
    Some(fs::read_to_string(WORK_MASK).ok()?.trim().to_owned())
}

/// Returns the control groups of lanes.
pub fn groups() -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(CPUSETS).into_iter().flatten().flatten();
    let named =
        |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("evermap-");
    entries.map(|entry| entry.path()).filter(named).collect()
}

/// Returns true if this user may use `SCHED_FIFO` here.
pub fn has_fifo() -> bool {
    let tried = Command::new("chrt").args(["-f", "1", "true"]).output();
    let has = tried.is_ok_and(|tried| tried.status.success());
    if !has {
        eprintln!("skipped: no permission for SCHED_FIFO, or no chrt");
    }
    has
}

/// Returns the command that runs an ignored test of this program as a child process, by its path.
pub fn child_command(name: &str) -> Vec<String> {
    let this = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    let words = ["env", "EVERMAP_TEST_CHILD=1", &this, name, "--exact", "--ignored", "--nocapture"];
    words.map(String::from).to_vec()
}

/// Returns true in a child process that [`child_command`] started, and false in a run of all
/// ignored tests.
pub fn is_child() -> bool {
    std::env::var_os("EVERMAP_TEST_CHILD").is_some()
}
