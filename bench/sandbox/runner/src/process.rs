//! New processes: timed from the moment before they are started to the moment after their end is
//! known, with what they cost.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::cost::{Cost, Whose};

/// A process that ended well.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Just before it was started, in nanoseconds of the system's monotonic clock.
    pub started_ns: u64,
    /// From before its start to after its end.
    pub whole: Duration,
    pub cost: Cost,
    pub output: String,
}

/// Starts it and waits for its end, which has to be a good one. Nothing else may end meanwhile.
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

/// The system's monotonic clock, the same for all processes.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The program and its arguments, for messages.
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
    fn output_time_and_faults_of_a_process_are_known() {
        let ended = shell("echo done; echo no >&2").unwrap();
        assert_eq!(ended.output, "done\n");
        assert!(ended.whole > Duration::ZERO && ended.cost.minor_faults > 10);
        assert!(ended.started_ns <= monotonic_ns());
    }

    #[test]
    fn a_bad_end_is_an_error_that_quotes_the_program() {
        let error = shell("echo no such file >&2; exit 3").unwrap_err().to_string();
        assert!(error.contains("no such file") && error.contains("/bin/sh"), "{error}");
    }
}
