//! System calls of a program and all that it starts, counted by the kernel.
//!
//! By the tracepoint `raw_syscalls:sys_enter` where `perf` may use it; else by `strace -c`, which stops the program at each
//! call but counts as well. Counted in a run of its own, which is not timed.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use crate::Outcome;
use crate::process::{self, Job, find_program};

/// Who counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Counter {
    Perf,
    Strace,
    Nobody,
}

impl Counter {
    /// The best that works here.
    pub fn find() -> Counter {
        let works = |counter: &Counter| {
            let probe = || Job::new(Command::new("/bin/true"));
            matches!(counter.count(probe()), Ok(Ok(count)) if count > 0)
        };
        [Counter::Perf, Counter::Strace].into_iter().find(works).unwrap_or(Counter::Nobody)
    }

    pub fn describe(self) -> &'static str {
        match self {
            Counter::Perf => "counted by the kernel (perf stat -e raw_syscalls:sys_enter)",
            Counter::Strace => "counted by strace -c",
            Counter::Nobody => "**not counted**: neither perf nor strace may",
        }
    }

    /// The system calls of a program, from its first instruction. A failure is the program's.
    pub fn count(self, job: Job) -> Outcome<Result<u64, process::Failure>> {
        let folder = tempfile::tempdir()?;
        let report = folder.path().join("report");
        let wrapped = match self {
            Counter::Perf => {
                let before = ["stat", "-x", ",", "-e", "raw_syscalls:sys_enter", "-o"];
                wrap("perf", &before, &report, &["--"], &job.command)
            }
            Counter::Strace => wrap("strace", &["-c", "-f", "-o"], &report, &["--"], &job.command),
            Counter::Nobody => return Ok(Err("nobody counts system calls here".to_string())),
        };
        let Some(wrapped) = wrapped else {
            return Ok(Err("nobody counts system calls here".to_string()));
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

/// The same program, started by another.
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
        if counter == Counter::Nobody {
            return eprintln!("skipped: {}", counter.describe());
        }
        let calls = |count: &str| {
            let mut command = Command::new("dd");
            command.args(["if=/dev/zero", "of=/dev/null", "bs=1", &format!("count={count}")]);
            counter.count(Job::new(command)).unwrap().unwrap()
        };
        let (few, many) = (calls("10"), calls("1010"));
        // A read and a write each.
        assert!((1990..2100).contains(&(many - few)), "{few} {many}");
    }
}
