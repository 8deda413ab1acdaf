//! Runs test cases that end their process or change it for the rest of its life. A promise is the
//! name of such a test case and its function. Each runs in its own process, which is this program
//! started with `--promise NAME`.

use std::process::{Command, ExitCode};

/// Name of a test case, and its function.
pub type Promise = (&'static str, fn());

/// Runs the test of a promise. Called in the promise's own process.
pub fn test(promises: &[Promise], name: &str) -> ExitCode {
    promises.iter().find(|(known, _)| *known == name).unwrap().1();
    ExitCode::SUCCESS
}

/// Returns the names that contain the first argument without a leading `-`, or all names if there
/// is none.
pub fn wanted<'a>(promises: &'a [Promise], words: &[&str]) -> Vec<&'a str> {
    let word = words.iter().find(|word| !word.starts_with('-')).copied().unwrap_or_default();
    promises.iter().map(|(name, _)| *name).filter(|name| name.contains(word)).collect()
}

/// Returns the command that runs the test of a promise in a new process.
pub fn process_of(name: &str) -> Command {
    this_program(&["--promise", name])
}

/// Runs a promise's process, prints the result with the name and `who`, and returns true on
/// success.
pub fn passes(name: &str, who: &str, mut process: Command) -> bool {
    let output = process.output().unwrap();
    let well = output.status.success();
    println!("test {name}{who} ... {}", if well { "ok" } else { "FAILED" });
    if !well {
        let [out, err] = [&output.stdout, &output.stderr].map(|o| String::from_utf8_lossy(o));
        println!("{:?}\n{out}{err}", output.status);
    }
    well
}

/// Returns the exit code of the test program.
pub fn end(all_kept: bool) -> ExitCode {
    if all_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns a command that starts this program with other arguments.
pub fn this_program(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(arguments);
    command
}
