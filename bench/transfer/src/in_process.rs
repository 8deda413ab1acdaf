//! Transfers measured inside a process that runs already: of small files, starting a process costs more than all else.
//!
//! Evermap does that itself: `evermap bench transfer --json --engine NAME --lanes N --rounds N SOURCE DESTINATION` copies so
//! often, and prints a JSON object a line for each round: `{"wall_ns":..,"user_ns":..,"system_ns":..}`. A command that
//! has no such verb is no error; tables then say what they lack.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::Outcome;
use crate::ends::go_on;
use crate::samples::Samples;

/// What is to be measured.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub engine: &'a str,
    pub lanes: u32,
    pub rounds: usize,
    pub source: &'a Path,
    pub destination: &'a Path,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
pub struct Timing {
    pub wall_ns: u64,
    pub user_ns: u64,
    pub system_ns: u64,
}

/// The command, if it can.
pub struct InProcess {
    program: PathBuf,
}

impl InProcess {
    /// Asks the command whether it has the verb.
    pub fn find(program: &Path) -> Option<InProcess> {
        let output = Command::new(program).args(["bench", "transfer", "--help"]).output().ok()?;
        output.status.success().then(|| InProcess { program: program.to_path_buf() })
    }

    /// The times of all rounds; an error if it could not do it.
    pub fn measure(&self, request: Request<'_>) -> Outcome<Vec<Timing>> {
        go_on()?;
        let mut command = Command::new(&self.program);
        command.args(["bench", "transfer", "--json", "--engine", request.engine]);
        command.args(["--lanes", &request.lanes.to_string()]);
        command.args(["--rounds", &request.rounds.to_string()]);
        let output = command.arg(request.source).arg(request.destination).output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_string().into());
        }
        parse(&String::from_utf8(output.stdout)?)
    }
}

fn parse(output: &str) -> Outcome<Vec<Timing>> {
    let lines = output.lines().filter(|line| !line.trim().is_empty());
    let timings = lines.map(|line| {
        serde_json::from_str(line)
            .map_err(|error| format!("`evermap bench transfer`: {error}: {line}"))
    });
    Ok(timings.collect::<Result<_, _>>()?)
}

/// In milliseconds.
pub fn wall_ms(timings: &[Timing]) -> Samples {
    let mut samples = Samples::new();
    timings.iter().for_each(|timing| samples.push(timing.wall_ns as f64 / 1e6));
    samples
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_round_is_a_line_and_more_may_stand_in_it() {
        let text = "{\"wall_ns\":9000,\"user_ns\":1,\"system_ns\":2,\"engine\":\"splice\"}\n\n";
        let timings = parse(text).unwrap();
        assert_eq!(timings, [Timing { wall_ns: 9000, user_ns: 1, system_ns: 2 }]);
        assert_eq!(wall_ms(&timings).median(), 0.009);
        assert!(parse("no such engine").is_err());
    }

    #[test]
    fn a_command_without_the_verb_is_no_error() {
        assert!(InProcess::find(Path::new("/bin/false")).is_none());
        assert!(InProcess::find(Path::new("/nonexistent")).is_none());
    }
}
