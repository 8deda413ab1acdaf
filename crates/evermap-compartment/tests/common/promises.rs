//! Promises whose tests end the process they are in, or hold for the rest of its life: each is a process
//! of its own, which the program starts by the promise's name.

use std::process::{Command, ExitCode};

/// A name, and what shows that it is kept.
pub type Promise = (&'static str, fn());

/// In a process of its own: tests the promise of this name.
pub fn test(promises: &[Promise], name: &str) -> ExitCode {
    promises.iter().find(|(known, _)| *known == name).unwrap().1();
    ExitCode::SUCCESS
}

/// The names that contain the word among the program's arguments, if there is one.
pub fn wanted<'a>(promises: &'a [Promise], words: &[&str]) -> Vec<&'a str> {
    let word = words.iter().find(|word| !word.starts_with('-')).copied().unwrap_or_default();
    promises.iter().map(|(name, _)| *name).filter(|name| name.contains(word)).collect()
}

/// The process that [`test`]s a promise.
pub fn process_of(name: &str) -> Command {
    myself(&["--promise", name])
}

/// Was the promise kept in its process? Says so, and if not, why; `who` is said behind the name.
pub fn is_kept(name: &str, who: &str, mut process: Command) -> bool {
    let output = process.output().unwrap();
    let well = output.status.success();
    println!("test {name}{who} ... {}", if well { "ok" } else { "FAILED" });
    if !well {
        let [out, err] = [&output.stdout, &output.stderr].map(|o| String::from_utf8_lossy(o));
        println!("{:?}\n{out}{err}", output.status);
    }
    well
}

/// How the whole program ends.
pub fn end(all_kept: bool) -> ExitCode {
    if all_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// This program, with other arguments.
pub fn myself(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(arguments);
    command
}
