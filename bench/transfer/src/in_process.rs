//! Measures transfers inside a running process, because the start of a process dominates the time
//! of small files.
//!
//! Evermap measures them itself: `evermap bench transfer --json` moves files of given sizes with
//! given engines, in turns, and prints a list of cells: engine, size, and the sorted times of all
//! rounds. A command without this verb is not an error; the tables then say what is missing.

use std::path::{Path, PathBuf};
use std::process::Command;

use harness::Outcome;
use harness::ends::check_interrupted;
use harness::raw::Origin;
use harness::samples::Samples;
use harness::{memory, units};
use serde::{Deserialize, Serialize};

use crate::bench::Bench;

/// Transfers to measure: warm, not synced.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub engines: &'a [&'a str],
    pub sizes_bytes: &'a [u64],
    pub rounds: usize,
    /// Folder for the files.
    pub folder: &'a Path,
}

/// Measurements of one engine and one size.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
pub struct Cell {
    pub engine: String,
    pub size_bytes: u64,
    pub wall_s: Vec<f64>,
    pub processor_s: Vec<f64>,
    /// Reason for missing times.
    pub refused: Option<String>,
}

impl Cell {
    /// Returns the times, or `None` if the engine can't do it there.
    pub fn wall_ms(&self) -> Option<Samples> {
        let mut samples = Samples::new();
        self.wall_s.iter().for_each(|s| samples.push(s * 1e3));
        (samples.count() > 0).then_some(samples)
    }
}

/// Command that has the verb.
pub struct InProcess {
    program: PathBuf,
}

impl InProcess {
    /// Tests if the command has the verb.
    pub fn find(program: &Path) -> Option<InProcess> {
        let output = Command::new(program).args(["bench", "transfer", "--help"]).output().ok()?;
        output.status.success().then(|| InProcess { program: program.to_path_buf() })
    }

    /// Returns the times of all rounds.
    pub fn measure(
        &self,
        bench: &mut Bench,
        section: &str,
        request: Request<'_>,
    ) -> Outcome<Vec<Cell>> {
        check_interrupted()?;
        if bench.options.warm_memory {
            memory::warm(request.sizes_bytes.iter().copied().max().unwrap_or(0))?;
        }
        let output = self.command(request).output()?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            return Err(format!("`evermap bench transfer`: {}", stderr.trim()).into());
        }
        let cells = parse(&output.stdout)?;
        for cell in &cells {
            let name = format!("in a process, {}", units::size(cell.size_bytes));
            let subject = &cell.engine;
            let origin = Origin { section, cell: &name, subject, round: request.rounds };
            bench.raw.add(origin, cell)?;
        }
        Ok(cells)
    }

    fn command(&self, request: Request<'_>) -> Command {
        let sizes: Vec<String> = request.sizes_bytes.iter().map(u64::to_string).collect();
        let mut command = Command::new(&self.program);
        command.args(["bench", "transfer", "--json", "--sizes", &sizes.join(",")]);
        command.args(["--engines", &request.engines.join(",")]);
        command.args(["--rounds", &request.rounds.to_string()]).arg(request.folder);
        command
    }
}

fn parse(output: &[u8]) -> Outcome<Vec<Cell>> {
    serde_json::from_slice(output).map_err(|error| {
        format!("cannot parse the output of `evermap bench transfer`: {error}").into()
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn cells_are_parsed_and_unknown_fields_ignored() {
        let text = br#"[{"engine":"splice","size_bytes":4096,"wall_s":[0.000009,0.00001,0.00002],
            "processor_s":[0.1],"calls":2,"switches":0,"refused":null},
            {"engine":"reflink","size_bytes":4096,"wall_s":[],"processor_s":[],"refused":"no"}]"#;
        let cells = parse(text).unwrap();
        assert_eq!(cells[0].wall_ms().unwrap().median(), 0.01);
        assert!(cells[1].wall_ms().is_none());
        assert!(parse(b"no such engine").is_err());
    }

    #[test]
    fn a_command_without_the_verb_is_not_an_error() {
        assert!(InProcess::find(Path::new("/bin/false")).is_none());
        assert!(InProcess::find(Path::new("/nonexistent")).is_none());
    }

    #[test]
    fn the_command_gets_engines_sizes_rounds_and_folder() {
        let inside = InProcess { program: "evermap".into() };
        let (engines, folder) = (["splice", "uring"], Path::new("/here"));
        let request = Request { engines: &engines, sizes_bytes: &[4096, 7], rounds: 3, folder };
        let command = inside.command(request);
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        let wanted = "bench transfer --json --sizes 4096,7 --engines splice,uring --rounds 3 /here";
        assert_eq!(words.join(" "), wanted);
    }
}
