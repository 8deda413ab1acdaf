//! Raw figures: every single figure as a line of CSV.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use crate::Outcome;

/// File `figures.csv` of a results folder.
pub struct Raw {
    output: BufWriter<Box<dyn Write>>,
}

/// Identifies the run of a figure.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    pub section: &'a str,
    pub contestant: &'a str,
    pub step: &'a str,
    /// Round; round 0 does not count.
    pub round: usize,
}

impl Raw {
    /// Creates the file.
    pub fn create(folder: &Path) -> Outcome<Raw> {
        std::fs::create_dir_all(folder)?;
        Raw::to(File::create(folder.join("figures.csv"))?)
    }

    fn to(output: impl Write + 'static) -> Outcome<Raw> {
        let mut output = BufWriter::new(Box::new(output) as Box<dyn Write>);
        writeln!(output, "section,contestant,step,round,what,value,unit")?;
        Ok(Raw { output })
    }

    /// Adds one figure.
    pub fn add(&mut self, of: Origin<'_>, what: &str, value: &str, unit: &str) -> Outcome {
        let Origin { section, contestant, step, round } = of;
        let round = round.to_string();
        let cells = [section, contestant, step, &round, what, value, unit].map(quoted);
        writeln!(self.output, "{}", cells.join(","))?;
        Ok(())
    }

    /// Flushes the file, so that figures survive a failure of a later step.
    pub fn flush(&mut self) -> Outcome {
        Ok(self.output.flush()?)
    }
}

/// Quotes a cell as RFC 4180 requires.
fn quoted(cell: &str) -> String {
    match cell.contains([',', '"', '\n']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn cells_with_commas_and_quotes_stay_one_cell() {
        let folder = tempfile::tempdir().unwrap();
        let mut raw = Raw::create(folder.path()).unwrap();
        let of = Origin { section: "dna", contestant: "WASI, 4 KiB", step: "a \"b\"", round: 1 };
        raw.add(of, "time", "1.5", "ms").unwrap();
        raw.flush().unwrap();
        let text = std::fs::read_to_string(folder.path().join("figures.csv")).unwrap();
        assert_eq!(text.lines().nth(1), Some("dna,\"WASI, 4 KiB\",\"a \"\"b\"\"\",1,time,1.5,ms"));
    }
}
