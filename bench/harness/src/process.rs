//! Runs one program and measures it, from just before its start until its end is known, with the
//! resource usage that the kernel reports.
//!
//! Programs start as cheaply as the standard library allows: by `posix_spawn`, with no code of this
//! process between fork and exec. The file for a redirected standard output is created within the
//! measured time, as a shell would. If a [`Job`] has a file to sync, this process syncs it within
//! the measured time, and the processor time counts, too.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde::Serialize;

use crate::Outcome;
use crate::ends::check_interrupted;

/// Longest run time of a program.
pub const LIMIT: Duration = Duration::from_secs(600);

/// Resource usage of a process and the children it waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cost {
    pub wall_ns: u64,
    pub user_ns: u64,
    pub system_ns: u64,
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
    pub minor_faults: u64,
    pub major_faults: u64,
    pub rss_max_bytes: u64,
    /// Bytes read from a device instead of the page cache.
    pub read_bytes: u64,
}

impl Cost {
    pub fn wall_ms(&self) -> f64 {
        self.wall_ns as f64 / 1e6
    }

    pub fn cpu_ms(&self) -> f64 {
        (self.user_ns + self.system_ns) as f64 / 1e6
    }

    fn of(usage: &libc::rusage) -> Cost {
        let ns =
            |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
        Cost {
            wall_ns: 0,
            user_ns: ns(usage.ru_utime),
            system_ns: ns(usage.ru_stime),
            voluntary_switches: usage.ru_nvcsw as u64,
            involuntary_switches: usage.ru_nivcsw as u64,
            minor_faults: usage.ru_minflt as u64,
            major_faults: usage.ru_majflt as u64,
            rss_max_bytes: usage.ru_maxrss as u64 * 1024,
            read_bytes: usage.ru_inblock as u64 * 512,
        }
    }

    pub fn faults(&self) -> u64 {
        self.minor_faults + self.major_faults
    }

    /// Adds the usage of another process or thread. Keeps the wall time.
    pub(crate) fn add(&mut self, other: &Cost) {
        self.user_ns += other.user_ns;
        self.system_ns += other.system_ns;
        self.voluntary_switches += other.voluntary_switches;
        self.involuntary_switches += other.involuntary_switches;
        self.minor_faults += other.minor_faults;
        self.major_faults += other.major_faults;
        self.rss_max_bytes = self.rss_max_bytes.max(other.rss_max_bytes);
        self.read_bytes += other.read_bytes;
    }

    /// Returns the usage since `before`, of the same thread.
    fn since(self, before: Cost) -> Cost {
        Cost {
            wall_ns: self.wall_ns - before.wall_ns,
            user_ns: self.user_ns - before.user_ns,
            system_ns: self.system_ns - before.system_ns,
            voluntary_switches: self.voluntary_switches - before.voluntary_switches,
            involuntary_switches: self.involuntary_switches - before.involuntary_switches,
            minor_faults: self.minor_faults - before.minor_faults,
            major_faults: self.major_faults - before.major_faults,
            rss_max_bytes: 0,
            read_bytes: self.read_bytes - before.read_bytes,
        }
    }
}

/// Program to run, with its files.
pub struct Job {
    pub command: Command,
    /// File for standard input.
    pub input: Option<PathBuf>,
    /// File for standard output; created or truncated.
    pub output: Option<PathBuf>,
    /// File that this process syncs after the program has ended.
    pub synced: Option<PathBuf>,
}

impl Job {
    pub fn new(command: Command) -> Job {
        Job { command, input: None, output: None, synced: None }
    }
}

/// Failure of a program: its exit status and its last error output.
pub type Failure = String;

/// Runs a program to its end. The inner error is a failure of the program.
pub fn run(job: Job) -> Outcome<Result<Cost, Failure>> {
    let Job { mut command, input, output, synced } = job;
    let mut stderr = tempfile::tempfile()?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr.try_clone()?);
    let name = command.get_program().to_string_lossy().into_owned();
    let own = own_cost()?;
    let start = Instant::now();
    if let Some(input) = input {
        command.stdin(File::open(input)?);
    }
    if let Some(output) = output {
        command.stdout(File::create(output)?);
    }
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ok(Err(format!("{name}: {error}"))),
    };
    let (status, cost) = finish(child, start)?;
    let sync = synced.as_deref().filter(|_| status.success()).map(sync);
    let wall_ns = start.elapsed().as_nanos() as u64;
    if !status.success() {
        return Ok(Err(format!("{name}: {status}: {}", last_lines(&mut stderr)?)));
    }
    sync.transpose()?;
    let mut cost = Cost { wall_ns, ..cost };
    if synced.is_some() {
        cost.add(&own_cost()?.since(own));
    }
    Ok(Ok(cost))
}

fn sync(path: &Path) -> Outcome {
    Ok(File::open(path)?.sync_all()?)
}

/// Waits for the end of a child. Kills it after the time limit or a signal.
pub fn finish(child: Child, start: Instant) -> Outcome<(ExitStatus, Cost)> {
    let pid = Pid::from_child(&child);
    let handle = pidfd_open(pid, PidfdFlags::empty())?;
    let outcome = until_end(&handle, start, LIMIT);
    if outcome.is_err() {
        // An error means that the process has already ended.
        let _ = kill_process(pid, Signal::KILL);
    }
    let end = wait(pid);
    outcome.and(end)
}

/// Waits until a process ends. Fails after the time limit or a signal.
pub(crate) fn until_end(handle: &OwnedFd, start: Instant, limit: Duration) -> Outcome {
    while !ends_within(handle, Duration::from_millis(200))? {
        check_interrupted()?;
        if start.elapsed() > limit {
            return Err(format!("a program took more than {limit:?}").into());
        }
    }
    Ok(())
}

/// Returns true if the process ends within this time. A signal ends the wait early.
pub(crate) fn ends_within(handle: &OwnedFd, time: Duration) -> Outcome<bool> {
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    match poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&time)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn wait(pid: Pid) -> Outcome<(ExitStatus, Cost)> {
    let mut status = 0;
    // SAFETY: an `rusage` may have any bytes, and both pointers are valid during the call.
    let (result, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (libc::wait4(pid.as_raw_nonzero().get(), &mut status, 0, &mut usage), usage)
    };
    if result != pid.as_raw_nonzero().get() {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok((ExitStatus::from_raw(status), Cost::of(&usage)))
}

/// Resource usage of this thread until now.
fn own_cost() -> Outcome<Cost> {
    // SAFETY: an `rusage` may have any bytes, and the pointer is valid during the call.
    let (result, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (libc::getrusage(libc::RUSAGE_THREAD, &mut usage), usage)
    };
    match result {
        0 => Ok(Cost::of(&usage)),
        _ => Err(std::io::Error::last_os_error().into()),
    }
}

/// Returns the last two lines of a program's error output as one line.
pub fn last_lines(stderr: &mut File) -> Outcome<String> {
    let text = text(stderr)?;
    let lines: Vec<&str> = text.trim().lines().collect();
    Ok(lines[lines.len().saturating_sub(2)..].join("; "))
}

/// Returns the whole text of a file. Replaces invalid UTF-8.
pub(crate) fn text(file: &mut File) -> Outcome<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Runs a tool that must succeed. Its error output is part of the error.
pub fn tool(program: &str, arguments: &[&std::ffi::OsStr]) -> Outcome {
    let mut command = Command::new(program);
    command.args(arguments);
    run(Job::new(command))?.map(|_| ()).map_err(Into::into)
}

/// Finds a program in PATH, then in the system folders, which may be missing from a user's PATH.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let folders = std::env::split_paths(&path).chain(more).collect::<Vec<_>>();
    let mut programs = folders.into_iter().map(|folder| folder.join(name));
    programs.find(|program| rustix::fs::access(program, rustix::fs::Access::EXEC_OK).is_ok())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn shell(script: &str) -> Job {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        Job::new(command)
    }

    #[test]
    fn the_cost_of_a_process_includes_its_children() {
        let script = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; /bin/true";
        let cost = run(shell(script)).unwrap().unwrap();
        assert!(cost.user_ns > 0 && cost.wall_ns > 0 && cost.minor_faults > 10, "{cost:?}");
    }

    #[test]
    fn input_and_output_are_files() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        std::fs::write(&from, "bytes").unwrap();
        let job = Job { input: Some(from), output: Some(to.clone()), ..shell("cat") };
        run(Job { synced: Some(to.clone()), ..job }).unwrap().unwrap();
        assert_eq!(std::fs::read_to_string(to).unwrap(), "bytes");
    }

    #[test]
    fn a_failure_quotes_the_error_output_of_the_program() {
        let failure = run(shell("echo no such file >&2; exit 3")).unwrap().unwrap_err();
        assert!(failure.contains("no such file") && failure.contains("3"), "{failure}");
        let failure = run(Job::new(Command::new("/nonexistent/program"))).unwrap().unwrap_err();
        assert!(failure.contains("/nonexistent/program"), "{failure}");
    }
}
