//! Counts the system calls of a program and all its children.
//!
//! Uses the tracepoint `raw_syscalls:sys_enter` if `perf` may read it; otherwise `strace -c`, which
//! stops the program at each call but counts the same. The counted run is separate and is not
//! timed.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use crate::Outcome;
use crate::process::{self, Job, find_program};

/// Tool that counts system calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Counter {
    Perf,
    Strace,
    Unavailable,
}

impl Counter {
    /// Returns the best counter that works on this machine.
    pub fn find() -> Counter {
        let works = |counter: &Counter| {
            let probe = || Job::new(Command::new("/bin/true"));
            matches!(counter.count(probe()), Ok(Ok(count)) if count > 0)
        };
        [Counter::Perf, Counter::Strace].into_iter().find(works).unwrap_or(Counter::Unavailable)
    }

    pub fn describe(self) -> &'static str {
        match self {
            Counter::Perf => "counted by the kernel (perf stat -e raw_syscalls:sys_enter)",
            Counter::Strace => "counted by strace -c",
            Counter::Unavailable => "**not counted**: neither perf nor strace works here",
        }
    }

    /// Counts the system calls of a program, from its first instruction. The inner error is a
    /// failure of the program.
    pub fn count(self, job: Job) -> Outcome<Result<u64, process::Failure>> {
        let folder = tempfile::tempdir()?;
        let report = folder.path().join("report");
        let wrapped = match self {
            Counter::Perf => {
                let before = ["stat", "-x", ",", "-e", "raw_syscalls:sys_enter", "-o"];
                wrap("perf", &before, &report, &["--"], &job.command)
            }
            Counter::Strace => wrap("strace", &["-c", "-f", "-o"], &report, &["--"], &job.command),
            Counter::Unavailable => {
                return Ok(Err("system calls cannot be counted here".to_string()));
            }
        };
        let Some(wrapped) = wrapped else {
            return Ok(Err("system calls cannot be counted here".to_string()));
        };
        if let Err(failure) = process::run(Job { command: wrapped, synced: None, ..job })? {
            return Ok(Err(failure));
        }
        let text = std::fs::read_to_string(&report)?;
        let count = match self {
            Counter::Perf => perf_count(&text),
            _ => strace_count(&text),
        };
        Ok(count.ok_or_else(|| format!("no count in: {}", text.trim())))
    }
}

/// Returns a command that runs the same program under `by`; `None` if `by` is not installed.
pub fn wrap(
    by: &str,
    before: &[&str],
    report: &Path,
    after: &[&str],
    command: &Command,
) -> Option<Command> {
    let mut wrapped = Command::new(find_program(by)?);
    wrapped
        .args(before)
        .arg(report)
        .args(after)
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(name, value),
            None => wrapped.env_remove(OsStr::new(name)),
        };
    }
    Some(wrapped)
}

/// `29,,raw_syscalls:sys_enter,...`
fn perf_count(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains("raw_syscalls:sys_enter"))?;
    line.split(',').next()?.trim().parse().ok()
}

/// The last line: `100.00    0.000385           9        41         2 total`.
fn strace_count(text: &str) -> Option<u64> {
    let line = text.lines().rev().find(|line| line.trim_end().ends_with("total"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn counts_are_found_in_the_reports() {
        let perf = "# started on Sun\n\n29,,raw_syscalls:sys_enter,2744883,100.00,,\n";
        assert_eq!(perf_count(perf), Some(29));
        assert_eq!(perf_count("<not supported>,,raw_syscalls:sys_enter,0,100.00,,"), None);
        let strace = "% time     seconds  usecs/call     calls    errors syscall\n\
                      ------ ----------- ----------- --------- --------- ----------------\n\
                      100.00    0.000385           9        41         2 total\n";
        assert_eq!(strace_count(strace), Some(41));
        let without_errors = "100.00    0.000385           9        41           total\n";
        assert_eq!(strace_count(without_errors), Some(41));
    }

    #[test]
    fn more_calls_are_counted_as_more() {
        let counter = Counter::find();
        if counter == Counter::Unavailable {
            return eprintln!("skipped: {}", counter.describe());
        }
        let calls = |count: &str| {
            let mut command = Command::new("dd");
            command.args(["if=/dev/zero", "of=/dev/null", "bs=1", &format!("count={count}")]);
            counter.count(Job::new(command)).unwrap().unwrap()
        };
        let (few, many) = (calls("10"), calls("1010"));
        // One read and one write for each block.
        assert!((1990..2100).contains(&(many - few)), "{few} {many}");
    }
}
