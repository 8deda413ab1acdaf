//! Runs a new process and measures it, from just before its start until its end is known, with the
//! resource usage of all its descendants.
//!
//! A program's output goes to memory, so that the program never waits for a reader.

use std::collections::HashSet;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::MemfdFlags;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::Outcome;
use crate::environment::check_interrupted;

/// Longest run time of a program.
pub const LIMIT: Duration = Duration::from_secs(120);
/// Longest wait for the end of a program after SIGTERM.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Resource usage of a process, the children it waited for, and those it left behind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    pub cpu: Duration,
    pub rss_max_bytes: u64,
    pub faults: u64,
    /// Bytes read from a device instead of the page cache.
    pub read_bytes: u64,
}

/// A process that ended.
pub struct Ended {
    /// Time just before the start, in nanoseconds of the monotonic clock.
    pub started_ns: u64,
    /// From before the start to after the end.
    pub whole: Duration,
    pub usage: Usage,
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
    /// Children of this process that existed before.
    others: HashSet<i32>,
    usage: Usage,
    ended: bool,
}

impl Running {
    pub fn start(mut command: Command) -> Outcome<Running> {
        check_interrupted()?;
        let output = File::from(rustix::fs::memfd_create("output", MemfdFlags::CLOEXEC)?);
        let stderr = File::from(rustix::fs::memfd_create("stderr", MemfdFlags::CLOEXEC)?);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(stderr.try_clone()?);
        let name = command.get_program().to_string_lossy().into_owned();
        let others = children()?.into_iter().collect();
        let (start, started_ns) = (Instant::now(), monotonic_ns());
        let child = command.spawn().map_err(|error| format!("{name}: {error}"))?;
        let pid = Pid::from_child(&child);
        let handle = pidfd_open(pid, PidfdFlags::empty())?;
        let usage = Usage::default();
        Ok(Running {
            pid,
            start,
            started_ns,
            name,
            handle,
            output,
            stderr,
            others,
            usage,
            ended: false,
        })
    }

    /// Returns true if the process ends within this time.
    pub fn ends_within(&self, time: Duration) -> Outcome<bool> {
        let time =
            Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
        let mut handles = [PollFd::new(&self.handle, PollFlags::IN)];
        match poll(&mut handles, Some(&time)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for the end of the process, which must be successful.
    pub fn finish(mut self) -> Outcome<Ended> {
        while !self.ends_within(Duration::from_millis(100))? {
            check_interrupted()?;
            if self.start.elapsed() > LIMIT {
                return Err(format!("{} took more than {LIMIT:?}", self.name).into());
            }
        }
        let whole = self.start.elapsed();
        let status = self.reap()?;
        self.end_strays()?;
        if status != 0 {
            return Err(self.failure(&format!("ended with status {status:#x}")));
        }
        let (started_ns, usage) = (self.started_ns, self.usage);
        Ok(Ended { started_ns, whole, usage, output: text(&mut self.output)? })
    }

    /// Ends the process, by force if it ignores SIGTERM. Its helper processes may stay, which can
    /// make a later start faster.
    pub fn stop(mut self, leave_strays: bool) -> Outcome<Usage> {
        kill_process(self.pid, Signal::TERM)?;
        if !self.ends_within(TIMEOUT)? {
            kill_process(self.pid, Signal::KILL)?;
        }
        self.reap()?;
        if !leave_strays {
            self.end_strays()?;
        }
        Ok(self.usage)
    }

    pub fn failure(&mut self, what: &str) -> Box<dyn std::error::Error> {
        let stderr = text(&mut self.stderr).unwrap_or_default();
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

    fn reap(&mut self) -> Outcome<i32> {
        let (status, usage) = wait(self.pid.as_raw_nonzero().get())?;
        self.ended = true;
        self.add(usage);
        Ok(status)
    }

    fn add(&mut self, usage: Usage) {
        self.usage.cpu += usage.cpu;
        self.usage.rss_max_bytes = self.usage.rss_max_bytes.max(usage.rss_max_bytes);
        self.usage.faults += usage.faults;
        self.usage.read_bytes += usage.read_bytes;
    }

    /// Ends processes that became children of this process because their parent ended.
    fn end_strays(&mut self) -> Outcome {
        for usage in end_children_except(&self.others)? {
            self.add(usage);
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

fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Kills a child of this process and returns its usage.
fn end(child: i32) -> Outcome<Usage> {
    if let Some(pid) = Pid::from_raw(child) {
        let _ = kill_process(pid, Signal::KILL);
    }
    Ok(wait(child)?.1)
}

/// Ends all children but these, and the children that they leave, and returns their usage.
pub fn end_children_except(kept: &HashSet<i32>) -> Outcome<Vec<Usage>> {
    let mut usages = Vec::new();
    loop {
        let children = children()?;
        let strays: Vec<i32> = children.into_iter().filter(|pid| !kept.contains(pid)).collect();
        if strays.is_empty() {
            return Ok(usages);
        }
        for stray in strays {
            usages.push(end(stray)?);
        }
    }
}

fn wait(pid: i32) -> Outcome<(i32, Usage)> {
    let mut status = 0;
    // SAFETY: all-zero bytes are a valid `rusage`; both places live during the call.
    let (result, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (libc::wait4(pid, &mut status, 0, &mut usage), usage)
    };
    if result != pid {
        return Err(std::io::Error::last_os_error().into());
    }
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    let usage = Usage {
        cpu: time(usage.ru_utime) + time(usage.ru_stime),
        rss_max_bytes: usage.ru_maxrss as u64 * 1024,
        faults: (usage.ru_minflt + usage.ru_majflt) as u64,
        read_bytes: usage.ru_inblock as u64 * 512,
    };
    Ok((status, usage))
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

fn text(file: &mut File) -> Outcome<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
pub static PROCESS_TESTS: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::MutexGuard;

    use super::*;

    /// Serialises tests that start processes, because each ends all processes that it did not find
    /// at its start.
    fn serially() -> MutexGuard<'static, ()> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
        super::PROCESS_TESTS.lock().unwrap_or_else(|broken| broken.into_inner())
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_process_reports_its_output_and_usage() {
        let _serial = serially();
        let script = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; echo done; echo no >&2";
        let ended = Running::start(shell(script)).unwrap().finish().unwrap();
        assert_eq!(ended.output, "done\n");
        assert!(ended.usage.cpu > Duration::ZERO && ended.usage.cpu <= ended.whole * 4);
        assert!(ended.usage.rss_max_bytes > 100 << 10 && ended.usage.faults > 10);
    }

    #[test]
    fn a_failure_quotes_the_error_output_of_the_program() {
        let _serial = serially();
        let running =
            Running::start(shell("echo first >&2; echo no such page >&2; exit 3")).unwrap();
        let error = running.finish().err().unwrap().to_string();
        assert!(error.contains("no such page") && error.contains("0x300"), "{error}");
    }

    #[test]
    fn large_output_does_not_block() {
        let _serial = serially();
        let ended = Running::start(shell("head -c 300000 /dev/zero")).unwrap().finish().unwrap();
        assert_eq!(ended.output.len(), 300_000);
    }

    #[test]
    fn a_process_that_ignores_sigterm_is_killed() {
        let _serial = serially();
        let running = Running::start(shell("trap '' TERM; while :; do :; done")).unwrap();
        assert!(!running.ends_within(Duration::from_millis(50)).unwrap());
        let pid = running.pid;
        let usage = running.stop(false).unwrap();
        assert!(usage.cpu > Duration::ZERO);
        assert!(rustix::process::test_kill_process(pid).is_err());
    }

    #[test]
    fn helper_processes_are_ended_with_their_children() {
        let _serial = serially();
        let before = children().unwrap();
        // A helper with its own helper, as browsers have them.
        let script = "sh -c 'sh -c \"exec sleep 1000\" & exec sleep 1000' & exit 0";
        let running = Running::start(shell(script)).unwrap();
        running.finish().unwrap();
        assert_eq!(children().unwrap(), before);
        assert!(!stats().iter().any(|stat| command_line(stat.pid).contains("sleep\u{0}1000")));
    }

    fn command_line(pid: i32) -> String {
        std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default()
    }

    #[test]
    fn processor_time_includes_running_children() {
        let _serial = serially();
        let running = Running::start(shell("(while :; do :; done) & wait")).unwrap();
        let start = Instant::now();
        while running.cpu() < Duration::from_millis(50) && start.elapsed() < LIMIT {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(running.cpu() >= Duration::from_millis(50));
    }
}
