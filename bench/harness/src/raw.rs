//! Raw figures: every single figure as a JSON object on its own line. Figures are written at once,
//! so they survive a failure of a later step.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use serde::Serialize;

use crate::Outcome;

/// File of raw figures, if one was requested.
#[derive(Default)]
pub struct Raw {
    output: Option<File>,
}

/// Identifies the step of a figure.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Origin<'a> {
    pub section: &'a str,
    pub cell: &'a str,
    pub subject: &'a str,
    /// Round; round 0 does not count.
    pub round: usize,
}

#[derive(Serialize)]
struct Line<'a, T> {
    #[serde(flatten)]
    origin: Origin<'a>,
    #[serde(flatten)]
    figures: T,
}

impl Raw {
    /// Creates the file.
    pub fn create(path: Option<&Path>) -> Outcome<Raw> {
        let create = |path: &Path| {
            File::create(path).map_err(|error| format!("{}: {error}", path.display()))
        };
        Ok(Raw { output: path.map(create).transpose()? })
    }

    /// Writes the figures of one step.
    pub fn add(&mut self, origin: Origin<'_>, figures: impl Serialize) -> Outcome {
        self.write(&Line { origin, figures })
    }

    /// Writes a line of another kind.
    pub fn write(&mut self, line: &impl Serialize) -> Outcome {
        if let Some(output) = &mut self.output {
            writeln!(output, "{}", serde_json::to_string(line)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn each_step_is_a_line_with_its_origin() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut raw = Raw::create(Some(file.path())).unwrap();
        let origin = Origin { section: "files", cell: "ext4", subject: "cp", round: 1 };
        raw.add(origin, crate::process::Cost { wall_ns: 7, ..Default::default() }).unwrap();
        raw.add(origin, serde_json::json!({"system_calls": 3})).unwrap();
        let text = std::fs::read_to_string(file.path()).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((&lines[0]["subject"], &lines[0]["wall_ns"]), (&"cp".into(), &7.into()));
        assert_eq!(lines[1]["system_calls"], 3);
    }

    #[test]
    fn without_a_file_nothing_is_written() {
        Raw::create(None).unwrap().write(&1).unwrap();
        assert!(Raw::create(Some(Path::new("/nonexistent/raw"))).is_err());
    }
}
