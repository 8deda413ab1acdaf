//! Several loaders at once: processes that wait until all are there, and begin together.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use common::Outcome;
use common::process::{Cost, Failure, finish, last_lines};

use crate::child::Taken;

/// One that waits.
struct Waiting {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    complaint: File,
}

/// What each of them took since they began together, or why one of them came to nothing. All are over when this returns.
pub fn run(commands: Vec<Command>) -> Outcome<Result<Vec<(Taken, Cost)>, Failure>> {
    let mut all = Vec::new();
    for command in commands {
        all.push(start(command)?);
    }
    for waiting in &mut all {
        // One that ended before says so at its end.
        let _ = waiting.output.read_line(&mut String::new())?;
    }
    let start = Instant::now();
    let mut begun = Vec::new();
    for Waiting { child, input, output, complaint } in all {
        drop(input);
        begun.push((child, output, complaint));
    }
    // All are waited for, whatever becomes of one.
    let ends: Vec<_> = begun
        .into_iter()
        .map(|(child, output, complaint)| {
            let end = finish(child, start).map(|(status, cost)| {
                (status, Cost { wall_ns: start.elapsed().as_nanos() as u64, ..cost })
            });
            (end, output, complaint)
        })
        .collect();
    let mut taken = Vec::new();
    for (end, mut output, mut complaint) in ends {
        let (status, cost) = end?;
        if !status.success() {
            return Ok(Err(format!("{status}: {}", last_lines(&mut complaint)?)));
        }
        let mut text = String::new();
        output.read_to_string(&mut text)?;
        taken.push((serde_json::from_str(&text)?, cost));
    }
    Ok(Ok(taken))
}

fn start(mut command: Command) -> Outcome<Waiting> {
    let complaint = tempfile::tempfile()?;
    command.arg("--latch").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(complaint.try_clone()?).spawn()?;
    let input = child.stdin.take().ok_or("its input is a pipe")?;
    let output = child.stdout.take().ok_or("its output is a pipe")?;
    Ok(Waiting { child, input, output: BufReader::new(output), complaint })
}
