//! Runs new processes, and measures their cost and time. The time begins just before the start and
//! ends when the runner sees the end.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::cost::{Cost, Whose};

/// Process that ended successfully.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Time just before the start, in nanoseconds of the monotonic clock.
    pub started_ns: u64,
    /// From before the start to after the end.
    pub whole: Duration,
    pub cost: Cost,
    pub output: String,
}

/// Runs a process, which must be successful. No other child may end during the call.
pub fn run(command: &mut Command) -> Outcome<Ended> {
    let before = Cost::until_now(Whose::Children)?;
    let (started_ns, start) = (monotonic_ns(), Instant::now());
    let output = command.output().map_err(|error| format!("{}: {error}", name(command)))?;
    let whole = start.elapsed();
    let cost = Cost::until_now(Whose::Children)?.since(before);
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {}: {}", name(command), output.status, stderr.trim()).into());
    }
    Ok(Ended { started_ns, whole, cost, output: String::from_utf8(output.stdout)? })
}

/// Returns the time of the monotonic clock, which all processes share.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returns the program and its arguments, for messages.
fn name(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn shell(script: &str) -> Outcome<Ended> {
        run(Command::new("/bin/sh").args(["-c", script]))
    }

    #[test]
    fn a_process_reports_output_time_and_faults() {
        let ended = shell("echo done; echo no >&2").unwrap();
        assert_eq!(ended.output, "done\n");
        assert!(ended.whole > Duration::ZERO && ended.cost.minor_faults > 10);
        assert!(ended.started_ns <= monotonic_ns());
    }

    #[test]
    fn a_failure_quotes_the_error_output_of_the_program() {
        let error = shell("echo no such file >&2; exit 3").unwrap_err().to_string();
        assert!(error.contains("no such file") && error.contains("/bin/sh"), "{error}");
    }
}
