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

/// Returns the names selected by the command line: those that contain its first argument, not
/// counting options. Without one, returns all names.
pub fn selected<'a>(promises: &'a [Promise], arguments: &[&str]) -> Vec<&'a str> {
    let filter = arguments.iter().find(|argument| !argument.starts_with('-'));
    let filter = filter.copied().unwrap_or_default();
    promises.iter().map(|(name, _)| *name).filter(|name| name.contains(filter)).collect()
}

/// Returns the command that runs the test of a promise in a new process.
pub fn process_of(name: &str) -> Command {
    this_program(&["--promise", name])
}

/// Runs a promise's process and returns true on success. Prints the result after the name and
/// `user_note`.
pub fn passes(name: &str, user_note: &str, mut process: Command) -> bool {
    let output = process.output().unwrap();
    let succeeded = output.status.success();
    println!("test {name}{user_note} ... {}", if succeeded { "ok" } else { "FAILED" });
    if !succeeded {
        let [out, err] = [&output.stdout, &output.stderr].map(|o| String::from_utf8_lossy(o));
        println!("{:?}\n{out}{err}", output.status);
    }
    succeeded
}

/// Returns the exit code of the test program.
pub fn exit_code(all_passed: bool) -> ExitCode {
    if all_passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns a command that starts this program with other arguments.
pub fn this_program(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(arguments);
    command
}
