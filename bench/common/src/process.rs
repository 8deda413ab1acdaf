//! Runs one program and measures it, from just before its start until its end is known, with the
//! resource usage that the kernel reports.
//!
//! Programs start as cheaply as the standard library allows (`posix_spawn`, no work between). A
//! redirected standard output goes to a new file that is created within the measured time, as a
//! shell would. A synced step ends with an `fsync` of the copy by this process, within the measured
//! time; its processor time counts, too.

use std::fs::File;
use std::io::{Read, Seek};
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
        }
    }

    /// Adds the usage of this thread between `before` and `after`.
    fn and(mut self, before: Cost, after: Cost) -> Cost {
        self.user_ns += after.user_ns - before.user_ns;
        self.system_ns += after.system_ns - before.system_ns;
        self.voluntary_switches += after.voluntary_switches - before.voluntary_switches;
        self.involuntary_switches += after.involuntary_switches - before.involuntary_switches;
        self.minor_faults += after.minor_faults - before.minor_faults;
        self.major_faults += after.major_faults - before.major_faults;
        self
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
    let cost = match synced {
        Some(_) => cost.and(own, own_cost()?),
        None => cost,
    };
    Ok(Ok(Cost { wall_ns, ..cost }))
}

fn sync(path: &Path) -> Outcome {
    Ok(File::open(path)?.sync_all()?)
}

/// Waits for the end of a child. Kills it after the time limit or a signal.
pub fn finish(child: Child, start: Instant) -> Outcome<(ExitStatus, Cost)> {
    let pid = Pid::from_child(&child);
    let handle = pidfd_open(pid, PidfdFlags::empty())?;
    let outcome = loop {
        let poll_interval = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
        match poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&poll_interval)) {
            Ok(ready) if ready > 0 => break Ok(()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => break Err(error.into()),
        }
        if let Err(error) = check_interrupted() {
            break Err(error);
        }
        if start.elapsed() > LIMIT {
            break Err(format!("a program took more than {LIMIT:?}").into());
        }
    };
    if outcome.is_err() {
        // An error means that the process has already ended.
        let _ = kill_process(pid, Signal::KILL);
    }
    let end = wait(pid);
    outcome.and(end)
}

fn wait(pid: Pid) -> Outcome<(ExitStatus, Cost)> {
    let mut status = 0;
    // SAFETY: any bytes are an `rusage`; both places live during the call.
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
    // SAFETY: any bytes are an `rusage`, which lives during the call.
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
    let mut bytes = Vec::new();
    stderr.rewind()?;
    stderr.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.trim().lines().collect();
    Ok(lines[lines.len().saturating_sub(2)..].join("; "))
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
