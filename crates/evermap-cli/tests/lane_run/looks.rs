//! What the kernel says of processes, cores and groups, and what of it can be tried here.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde_json::Value;

pub const CPUSETS: &str = "/sys/fs/cgroup/cpuset";
/// Where the kernel's unbound work is done.
pub const WORK_MASK: &str = "/sys/devices/virtual/workqueue/cpumask";
/// For what is no promise: this machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub fn wait_for(what: &str, max: Duration, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < max, "waited {:?} for {what}", began.elapsed());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Only processes of a test, whose numbers its own journal told.
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

/// A file of a process; what has a program's name in it need not be text.
pub fn text(pid: u32, file: &str) -> String {
    let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The kernel's number of a policy, in the text of `/proc/PID/stat`: 0 is ordinary, 1 FIFO, 6 DEADLINE.
pub fn class(stat: &str) -> Option<u32> {
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(38)?.trim().parse().ok()
}

/// That of a process or a thread.
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

/// Whether a program that a lane has left is as all others.
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

/// The groups of lanes.
pub fn work_mask() -> Option<String> {
    Some(fs::read_to_string(WORK_MASK).ok()?.trim().to_owned())
}

pub fn groups() -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(CPUSETS).into_iter().flatten().flatten();
    let named =
        |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("evermap-");
    entries.map(|entry| entry.path()).filter(named).collect()
}

/// Whether this user may be real-time here.
pub fn has_fifo() -> bool {
    let tried = Command::new("chrt").args(["-f", "1", "true"]).output();
    let has = tried.is_ok_and(|tried| tried.status.success());
    if !has {
        eprintln!("skipped: no right to FIFO here, or no chrt");
    }
    has
}

/// The command that runs an act of this program, by its path among the tests.
pub fn act(name: &str) -> Vec<String> {
    let this = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    let words = ["env", "EVERMAP_ACT=1", &this, name, "--exact", "--ignored", "--nocapture"];
    words.map(String::from).to_vec()
}

/// Whether this is an act that was started, and not a run of all ignored tests.
pub fn is_act() -> bool {
    std::env::var_os("EVERMAP_ACT").is_some()
}
