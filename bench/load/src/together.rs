//! Runs several loaders at once: all processes wait until each is ready, then begin together.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use harness::Outcome;
use harness::process::{Cost, Failure, finish, last_lines};

use crate::child::Taken;

/// Loader that waits for the start.
struct Waiting {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    stderr: File,
}

/// Returns the measurements of each loader from the common start, or the failure of one. All
/// processes have ended when this returns.
pub fn run(commands: Vec<Command>) -> Outcome<Result<Vec<(Taken, Cost)>, Failure>> {
    let mut all = Vec::new();
    for command in commands {
        all.push(start(command)?);
    }
    for waiting in &mut all {
        // A loader that ended early reports its failure at its end.
        let _ = waiting.output.read_line(&mut String::new())?;
    }
    let start = Instant::now();
    let mut begun = Vec::new();
    for Waiting { child, input, output, stderr } in all {
        drop(input);
        begun.push((child, output, stderr));
    }
    // Waits for all, even if one fails.
    let ends: Vec<_> = begun
        .into_iter()
        .map(|(child, output, stderr)| {
            let end = finish(child, start).map(|(status, cost)| {
                (status, Cost { wall_ns: start.elapsed().as_nanos() as u64, ..cost })
            });
            (end, output, stderr)
        })
        .collect();
    let mut taken = Vec::new();
    for (end, mut output, mut stderr) in ends {
        let (status, cost) = end?;
        if !status.success() {
            return Ok(Err(format!("{status}: {}", last_lines(&mut stderr)?)));
        }
        let mut text = String::new();
        output.read_to_string(&mut text)?;
        taken.push((serde_json::from_str(&text)?, cost));
    }
    Ok(Ok(taken))
}

fn start(mut command: Command) -> Outcome<Waiting> {
    let stderr = tempfile::tempfile()?;
    command.arg("--latch").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(stderr.try_clone()?).spawn()?;
    let input = child.stdin.take().ok_or("its input is a pipe")?;
    let output = child.stdout.take().ok_or("its output is a pipe")?;
    Ok(Waiting { child, input, output: BufReader::new(output), stderr })
}
