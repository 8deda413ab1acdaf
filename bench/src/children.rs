//! Runs new processes, this program or another one of this folder, timed from just before their
//! start until their end is known.
//!
//! A child prints its own figures after its work, one `name value` per line. The pipe is read after
//! the clock has stopped.

use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::Outcome;

/// Process that ended successfully.
pub struct Finished {
    /// From before the start to after the end.
    pub whole: Duration,
    figures: HashMap<String, f64>,
}

impl Finished {
    /// Returns a figure that the child printed.
    pub fn figure(&self, name: &str) -> Outcome<f64> {
        let found = self.figures.get(name).copied();
        found.ok_or_else(|| format!("the child printed no `{name}`").into())
    }
}

/// Runs this program as a child.
pub fn run(arguments: &[&str]) -> Outcome<Finished> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("child").args(arguments);
    finish(command)
}

/// Runs another program.
pub fn run_program(program: &Path, arguments: &[&str]) -> Outcome<Finished> {
    let mut command = Command::new(program);
    command.args(arguments);
    finish(command)
}

/// Returns the path of another program of this folder.
pub fn sibling(name: &str) -> Outcome<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    match path.is_file() {
        true => Ok(path),
        false => Err(format!("{} is not built", path.display()).into()),
    }
}

fn finish(mut command: Command) -> Outcome<Finished> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let start = Instant::now();
    let mut child = command.spawn()?;
    let status = child.wait()?;
    let whole = start.elapsed();
    let (mut output, mut stderr) = (String::new(), String::new());
    if let Some(mut pipe) = child.stdout.take() {
        pipe.read_to_string(&mut output)?;
    }
    if let Some(mut pipe) = child.stderr.take() {
        pipe.read_to_string(&mut stderr)?;
    }
    if !status.success() {
        return Err(format!("{command:?}: {status}: {}", stderr.trim()).into());
    }
    let pairs = output.lines().filter_map(|line| line.split_once(' '));
    let figures = pairs.filter_map(|(name, value)| Some((name.to_string(), value.parse().ok()?)));
    Ok(Finished { whole, figures: figures.collect() })
}

/// Prints the figures of a child process.
pub fn print(figures: &[(&str, f64)]) {
    let lines: String = figures.iter().map(|(name, value)| format!("{name} {value}\n")).collect();
    print!("{lines}");
}

/// Returns the microseconds since `start`.
pub fn us_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e6
}
