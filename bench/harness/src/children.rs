//! Runs new processes that print their own figures: this program as a child, or another one of this
//! folder.
//!
//! A child prints its figures after its work, one `name value` per line.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::Outcome;
use crate::running::{Ended, Running};

impl Ended {
    /// Returns a figure that the child printed.
    pub fn figure(&self, name: &str) -> Outcome<f64> {
        let mut pairs = self.output.lines().filter_map(|line| line.split_once(' '));
        let found =
            pairs.find(|(found, _)| *found == name).and_then(|(_, value)| value.parse().ok());
        found.ok_or_else(|| format!("the child printed no `{name}`").into())
    }
}

/// Runs this program as a child.
pub fn run(arguments: &[&str]) -> Outcome<Ended> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("child").args(arguments);
    Running::start(command)?.finish()
}

/// Runs another program.
pub fn run_program(program: &Path, arguments: &[&str]) -> Outcome<Ended> {
    let mut command = Command::new(program);
    command.args(arguments);
    Running::start(command)?.finish()
}

/// Returns the path of another program of this folder.
pub fn sibling(name: &str) -> Outcome<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    match path.is_file() {
        true => Ok(path),
        false => Err(format!("{} is not built", path.display()).into()),
    }
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
