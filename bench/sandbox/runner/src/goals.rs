//! Goals for ratios, and the measured ratios.

use std::path::Path;

use serde::Serialize;

use crate::Outcome;
use crate::samples::{Samples, figure};
use crate::table::Table;

/// Limit for a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

impl Goal {
    fn is_met(self, ratio: f64) -> bool {
        match self {
            Goal::AtLeast(least) => ratio >= least,
            Goal::AtMost(most) => ratio <= most,
        }
    }

    fn text(self) -> String {
        match self {
            Goal::AtLeast(least) => format!(">= {least}"),
            Goal::AtMost(most) => format!("<= {most}"),
        }
    }
}

/// Measured ratios, and the result of their goal.
#[derive(Clone, Debug, Serialize)]
struct Line {
    what: String,
    goal: Goal,
    ratio: f64,
    ratio_least: f64,
    ratio_most: f64,
    met: bool,
}

/// All goals of a run.
#[derive(Debug, Default)]
pub struct Goals {
    lines: Vec<Line>,
}

impl Goals {
    /// Compares the median of the ratios, one per round, with a goal. Returns the last cell of a
    /// table: ratio, goal, and result.
    pub fn judge(&mut self, what: &str, ratios: &Samples, goal: Goal) -> String {
        let (ratio, met) = (ratios.median(), goal.is_met(ratios.median()));
        self.lines.push(Line {
            what: what.to_string(),
            goal,
            ratio,
            ratio_least: ratios.min(),
            ratio_most: ratios.max(),
            met,
        });
        format!("{} (goal {}: {})", figure(ratio), goal.text(), verdict(met))
    }

    fn table(&self) -> Table {
        let mut table = Table::new(&["", "ratio", "goal", ""]);
        for line in &self.lines {
            let spread = format!(
                "{} ({}-{})",
                figure(line.ratio),
                figure(line.ratio_least),
                figure(line.ratio_most)
            );
            table.row(&[&line.what, &spread, &line.goal.text(), verdict(line.met)]);
        }
        table
    }

    pub fn print(&self) {
        if !self.lines.is_empty() {
            println!("\n## Goals\n\n{}", self.table());
        }
    }

    /// Writes the goals to `goals.json`.
    pub fn write(&self, folder: &Path) -> Outcome {
        let text = serde_json::to_string_pretty(&self.lines)?;
        Ok(std::fs::write(folder.join("goals.json"), text + "\n")?)
    }
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "**missed**" }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn samples(values: &[f64]) -> Samples {
        let mut samples = Samples::new();
        values.iter().for_each(|value| samples.push(*value));
        samples
    }

    #[test]
    fn the_median_decides_and_the_limit_itself_is_met() {
        let mut goals = Goals::default();
        let cell = goals.judge("reads", &samples(&[1.0, 20.0, 90.0]), Goal::AtLeast(20.0));
        assert_eq!(cell, "20.0 (goal >= 20: met)");
        let cell = goals.judge("starts", &samples(&[1.0, 1.6, 1.7]), Goal::AtMost(1.5));
        assert_eq!(cell, "1.60 (goal <= 1.5: **missed**)");
        let text = goals.table().to_string();
        assert!(text.contains("| reads | 20.0 (1.00-90.0) | >= 20 | met |"), "{text}");
    }

    #[test]
    fn a_nan_ratio_meets_no_goal() {
        let nothing = Samples::new();
        for goal in [Goal::AtLeast(0.0), Goal::AtMost(9.0)] {
            assert!(Goals::default().judge("", &nothing, goal).contains("missed"));
        }
    }

    #[test]
    fn goals_are_written_as_json() {
        let folder = tempfile::tempdir().unwrap();
        let mut goals = Goals::default();
        goals.judge("reads", &samples(&[3.0]), Goal::AtLeast(2.0));
        goals.write(folder.path()).unwrap();
        let text = std::fs::read_to_string(folder.path().join("goals.json")).unwrap();
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read[0]["goal"]["at_least"], 2.0);
        assert_eq!(read[0]["met"], true);
    }
}
