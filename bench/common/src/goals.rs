//! Goals: the limit, the measured figure, and the peer it was compared with.

use serde::Serialize;

use crate::Outcome;
use crate::raw::Raw;
use crate::samples::{Samples, figure};
use crate::table::Table;

/// Limit for a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

impl Goal {
    fn is_met(self, value: f64) -> bool {
        match self {
            Goal::AtLeast(least) => value >= least,
            Goal::AtMost(most) => value <= most,
        }
    }

    fn text(self) -> String {
        match self {
            Goal::AtLeast(least) => format!(">= {}", shortest(least)),
            Goal::AtMost(most) => format!("<= {}", shortest(most)),
        }
    }
}

/// Formats a number with at most three decimals and no trailing zeros.
fn shortest(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// Result of one goal.
#[derive(Clone, Debug, Serialize)]
struct Line {
    goal_of: String,
    goal: Goal,
    peer: String,
    /// `None` if it could not be measured; `why` then has the reason.
    got: Option<Got>,
    why: String,
}

#[derive(Clone, Debug, Serialize)]
struct Got {
    median: f64,
    least: f64,
    most: f64,
    met: bool,
}

/// All goals of a run.
#[derive(Debug, Default)]
pub struct Goals {
    lines: Vec<Line>,
}

impl Goals {
    /// Compares the median of the figures, one per round, with a goal.
    pub fn judge(&mut self, what: &str, peer: &str, figures: &Samples, goal: Goal) -> bool {
        let (median, least, most) = (figures.median(), figures.min(), figures.max());
        let met = goal.is_met(median);
        let got = Some(Got { median, least, most, met });
        let (goal_of, peer) = (what.to_string(), peer.to_string());
        self.lines.push(Line { goal_of, goal, peer, got, why: String::new() });
        met
    }

    /// Records a goal that could not be measured here.
    pub fn unmeasured(&mut self, what: &str, goal: Goal, why: &str) {
        let (goal_of, why) = (what.to_string(), why.to_string());
        self.lines.push(Line { goal_of, goal, peer: String::new(), got: None, why });
    }

    pub fn table(&self) -> Table {
        let mut table = Table::new(&["", "goal", "got", "against", ""]);
        for line in &self.lines {
            let (got, verdict) = match &line.got {
                Some(Got { median, least, most, met }) => (
                    format!("{} ({}-{})", figure(*median), figure(*least), figure(*most)),
                    if *met { "met".to_string() } else { "**missed**".to_string() },
                ),
                None => ("-".to_string(), format!("not measured: {}", line.why)),
            };
            table.row(&[&line.goal_of, &line.goal.text(), &got, &line.peer, &verdict]);
        }
        table
    }

    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    pub fn write(&self, raw: &mut Raw) -> Outcome {
        self.lines.iter().try_for_each(|line| raw.write(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: &[f64]) -> Samples {
        let mut samples = Samples::new();
        values.iter().for_each(|value| samples.push(*value));
        samples
    }

    #[test]
    fn the_median_decides_and_the_limit_itself_is_met() {
        let mut goals = Goals::default();
        assert!(goals.judge("1 GiB", "cp", &samples(&[1.0, 1.15, 9.0]), Goal::AtLeast(1.15)));
        assert!(!goals.judge("CPU", "cp", &samples(&[0.1, 0.26, 0.3]), Goal::AtMost(0.25)));
        let text = goals.table().to_string();
        assert!(text.contains("| 1 GiB | >= 1.15 | 1.15 (1.00-9.00) | cp | met |"), "{text}");
        assert!(text.contains("| CPU | <= 0.25 | 0.26 (0.10-0.30) | cp | **missed** |"), "{text}");
    }

    #[test]
    fn nan_meets_no_goal_and_unmeasured_goals_show_their_reason() {
        let mut goals = Goals::default();
        for goal in [Goal::AtLeast(0.0), Goal::AtMost(9.0)] {
            assert!(!goals.judge("", "", &Samples::new(), goal));
        }
        goals.unmeasured("sending", Goal::AtMost(1.0 / 6.0), "no nginx");
        let text = goals.table().to_string();
        assert!(text.contains("| sending | <= 0.167 | - |  | not measured: no nginx |"), "{text}");
    }
}
