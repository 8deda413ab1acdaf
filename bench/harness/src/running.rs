//! Runs a new process, keeps its output, and measures it, from just before its start until its end
//! is known. With its family, the resource usage of all its descendants counts.
//!
//! A program's output goes to memory, so that the program never waits for a reader.

use std::collections::HashSet;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::MemfdFlags;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::Outcome;
use crate::ends::check_interrupted;
use crate::process::{self, Cost};

/// Longest run time of a program.
const LIMIT: Duration = Duration::from_secs(3600);
/// Longest run time of a program with its family, such as a browser.
const LIMIT_FAMILY: Duration = Duration::from_secs(120);
/// Longest wait for the end of a program after SIGTERM.
const TIMEOUT: Duration = Duration::from_secs(3);

/// A process that ended successfully.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Time just before the start, in nanoseconds of the monotonic clock.
    pub started_ns: u64,
    /// From before the start to after the end.
    pub whole: Duration,
    /// Usage of the process, the children it waited for, and those it left behind.
    pub cost: Cost,
    pub output: String,
}

/// Running process. It is killed on drop.
pub struct Running {
    pub pid: Pid,
    pub start: Instant,
    started_ns: u64,
    name: String,
    handle: OwnedFd,
    output: File,
    stderr: File,
    /// Children of this process that existed before, if those that the program leaves behind are
    /// ended with it.
    others: Option<HashSet<i32>>,
    cost: Cost,
    ended: bool,
}

impl Running {
    /// Starts a program.
    pub fn start(command: Command) -> Outcome<Running> {
        Running::launch(command, None)
    }

    /// Starts a program whose helper processes end with it. They become children of this process
    /// (which must be their subreaper) when their parent ends.
    pub fn start_family(command: Command) -> Outcome<Running> {
        Running::launch(command, Some(children()?.into_iter().collect()))
    }

    fn launch(mut command: Command, others: Option<HashSet<i32>>) -> Outcome<Running> {
        check_interrupted()?;
        let output = File::from(rustix::fs::memfd_create("output", MemfdFlags::CLOEXEC)?);
        let stderr = File::from(rustix::fs::memfd_create("stderr", MemfdFlags::CLOEXEC)?);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(stderr.try_clone()?);
        let name = command.get_program().to_string_lossy().into_owned();
        let (start, started_ns) = (Instant::now(), monotonic_ns());
        let child = command.spawn().map_err(|error| format!("{name}: {error}"))?;
        let pid = Pid::from_child(&child);
        let handle = pidfd_open(pid, PidfdFlags::empty())?;
        let (cost, ended) = (Cost::default(), false);
        Ok(Running { pid, start, started_ns, name, handle, output, stderr, others, cost, ended })
    }

    /// Returns true if the process ends within this time.
    pub fn ends_within(&self, time: Duration) -> Outcome<bool> {
        process::ends_within(&self.handle, time)
    }

    /// Waits for the end of the process, which must be successful.
    pub fn finish(mut self) -> Outcome<Ended> {
        let limit = if self.others.is_some() { LIMIT_FAMILY } else { LIMIT };
        process::until_end(&self.handle, self.start, limit)
            .map_err(|error| format!("{}: {error}", self.name))?;
        let whole = self.start.elapsed();
        let status = self.reap()?;
        self.end_strays()?;
        if !status.success() {
            return Err(self.failure(&format!("ended with {status}")));
        }
        let cost = Cost { wall_ns: whole.as_nanos() as u64, ..self.cost };
        Ok(Ended {
            started_ns: self.started_ns,
            whole,
            cost,
            output: process::text(&mut self.output)?,
        })
    }

    /// Ends the process, by force if it ignores SIGTERM. Its helper processes may stay, which can
    /// make a later start faster.
    pub fn stop(mut self, leave_strays: bool) -> Outcome<Cost> {
        kill_process(self.pid, Signal::TERM)?;
        if !self.ends_within(TIMEOUT)? {
            kill_process(self.pid, Signal::KILL)?;
        }
        self.reap()?;
        if !leave_strays {
            self.end_strays()?;
        }
        Ok(self.cost)
    }

    pub fn failure(&mut self, what: &str) -> Box<dyn std::error::Error> {
        let stderr = process::text(&mut self.stderr).unwrap_or_default();
        let lines: Vec<&str> = stderr.trim().lines().collect();
        let last = lines[lines.len().saturating_sub(4)..].join("; ");
        format!("{} {what}: {last}", self.name).into()
    }

    /// Processor time of the process and its descendants, both ended and running.
    pub fn cpu(&self) -> Duration {
        let mut ticks = 0;
        let mut family = HashSet::from([self.pid.as_raw_nonzero().get()]);
        // A child has a higher id than its parent, unless the ids have wrapped around.
        for stat in stats() {
            if family.contains(&stat.pid) || family.contains(&stat.parent) {
                family.insert(stat.pid);
                ticks += stat.ticks;
            }
        }
        Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
    }

    fn reap(&mut self) -> Outcome<ExitStatus> {
        let (status, cost) = process::wait(self.pid)?;
        self.ended = true;
        self.cost.add(&cost);
        Ok(status)
    }

    /// Ends processes that became children of this process because their parent ended.
    fn end_strays(&mut self) -> Outcome {
        if let Some(others) = &self.others {
            end_children_except(others)?.iter().for_each(|cost| self.cost.add(cost));
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            // An error means that the process has already ended.
            let _ = kill_process(self.pid, Signal::KILL);
            let _ = self.reap();
            let _ = self.end_strays();
        }
    }
}

/// Returns the time of the monotonic clock, which all processes share.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Ends all children but these, and the children that they leave, and returns their usage.
pub fn end_children_except(kept: &HashSet<i32>) -> Outcome<Vec<Cost>> {
    let mut costs = Vec::new();
    loop {
        let children = children()?;
        let strays: Vec<i32> = children.into_iter().filter(|pid| !kept.contains(pid)).collect();
        if strays.is_empty() {
            return Ok(costs);
        }
        for stray in strays.into_iter().filter_map(Pid::from_raw) {
            let _ = kill_process(stray, Signal::KILL);
            costs.push(process::wait(stray)?.1);
        }
    }
}

/// Returns the children of this process.
pub fn children() -> Outcome<Vec<i32>> {
    let own = std::process::id() as i32;
    Ok(stats().into_iter().filter(|stat| stat.parent == own).map(|stat| stat.pid).collect())
}

struct Stat {
    pid: i32,
    parent: i32,
    ticks: u64,
}

/// Returns all processes, sorted by id.
fn stats() -> Vec<Stat> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let names = entries.flatten().map(|entry| entry.file_name());
    let pids = names.filter_map(|name| name.to_str()?.parse().ok());
    let mut stats: Vec<Stat> = pids.filter_map(stat).collect();
    stats.sort_by_key(|stat| stat.pid);
    stats
}

fn stat(pid: i32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may contain any character.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    // User and system time of the process and of the children that it waited for.
    let ticks = number(11)? + number(12)? + number(13)? + number(14)?;
    Some(Stat { pid, parent: number(1)? as i32, ticks })
}
