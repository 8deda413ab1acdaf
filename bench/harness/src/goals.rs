//! Goals: the limit, the measured figure, and what it was compared with.

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
pub fn shortest(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "**missed**" }
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
    /// Texts for the table, if the figures have units.
    #[serde(skip)]
    shown: Option<Shown>,
}

#[derive(Clone, Debug, Serialize)]
struct Got {
    median: f64,
    least: f64,
    most: f64,
    met: bool,
}

impl Got {
    fn one(figure: f64, met: bool) -> Got {
        Got { median: figure, least: figure, most: figure, met }
    }
}

impl std::fmt::Display for Got {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}-{})", figure(self.median), figure(self.least), figure(self.most))
    }
}

/// A goal and its result with their units.
#[derive(Clone, Debug)]
struct Shown {
    goal: String,
    got: String,
    ratio: f64,
}

/// Figure with its text.
pub type Measured = (f64, String);

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
        self.add(what, peer, goal, Got { median, least, most, met }, None);
        met
    }

    /// Judges ratios that have no peer's name. Returns a cell of a table: ratio, goal, and result.
    pub fn judge_in_cell(&mut self, what: &str, ratios: &Samples, goal: Goal) -> String {
        let met = self.judge(what, "", ratios, goal);
        format!("{} (goal {}: {})", figure(ratios.median()), goal.text(), verdict(met))
    }

    /// Records a goal that could not be measured here.
    pub fn unmeasured(&mut self, what: &str, goal: Goal, why: &str) {
        let (goal_of, why) = (what.to_string(), why.to_string());
        self.lines.push(Line { goal_of, goal, peer: String::new(), got: None, why, shown: None });
    }

    /// Judges that `got` is at most `most` times `floor`.
    pub fn ratio(&mut self, what: &str, most: f64, (got, text): Measured, floor: (f64, &str)) {
        let peer = format!("{}: {}", floor.1, figure(floor.0));
        let (ratio, met) = (got / floor.0, got <= most * floor.0);
        let shown = Shown { goal: format!("{most} x"), got: text, ratio };
        self.add(what, &peer, Goal::AtMost(most), Got::one(ratio, met), Some(shown));
    }

    /// Judges that `got` itself is at most `most`.
    pub fn at_most(&mut self, what: &str, most: (f64, &str), (got, text): Measured, floor: String) {
        let goal = format!("{} {}", figure(most.0), most.1);
        let shown = Shown { goal, got: text, ratio: got / most.0 };
        self.add(what, &floor, Goal::AtMost(most.0), Got::one(got, got <= most.0), Some(shown));
    }

    /// Judges that `got` is at most `whole` divided by `least`.
    pub fn at_least(&mut self, what: &str, least: f64, (got, text): Measured, whole: (f64, &str)) {
        let peer = format!("{}: {}", whole.1, figure(whole.0));
        let (ratio, met) = (whole.0 / got, whole.0 >= least * got);
        let shown = Shown { goal: format!("1 in {least}"), got: text, ratio };
        self.add(what, &peer, Goal::AtLeast(least), Got::one(ratio, met), Some(shown));
    }

    fn add(&mut self, what: &str, peer: &str, goal: Goal, got: Got, shown: Option<Shown>) {
        let (goal_of, peer) = (what.to_string(), peer.to_string());
        self.lines.push(Line { goal_of, goal, peer, got: Some(got), why: String::new(), shown });
    }

    /// Returns the table of all goals. It has a column of ratios if one of the goals has a unit.
    pub fn table(&self) -> Table {
        let has_ratios = self.lines.iter().any(|line| line.shown.is_some());
        let mut head = vec!["", "goal", "got", "against"];
        head.extend(has_ratios.then_some("ratio"));
        head.push("");
        let mut table = Table::new(&head);
        for line in &self.lines {
            let verdict = match &line.got {
                Some(got) => verdict(got.met).to_string(),
                None => format!("not measured: {}", line.why),
            };
            let (goal, got, ratio) = match (&line.shown, &line.got) {
                (Some(shown), _) => (shown.goal.clone(), shown.got.clone(), figure(shown.ratio)),
                (None, Some(got)) => (line.goal.text(), got.to_string(), String::new()),
                (None, None) => (line.goal.text(), "-".to_string(), String::new()),
            };
            let mut row = vec![line.goal_of.clone(), goal, got, line.peer.clone()];
            row.extend(has_ratios.then_some(ratio));
            row.push(verdict);
            table.row(&row);
        }
        table
    }

    /// Prints the goals with their results, if there are any.
    pub fn print(&self) {
        if self.lines.is_empty() {
            return;
        }
        println!("\n## Goals\n");
        if self.lines.iter().any(|line| line.shown.is_some()) {
            println!(
                "For goals with `x`, the ratio is to the figure under `against`; for `1 in`, it is that \
                 figure divided by the result; for all others it is to the goal.\n"
            );
        }
        println!("{}", self.table());
    }

    pub fn write(&self, raw: &mut Raw) -> Outcome {
        self.lines.iter().try_for_each(|line| raw.write(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: &[f64]) -> Samples {
        values.iter().copied().collect()
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
    fn a_cell_has_the_ratio_the_goal_and_the_result() {
        let mut goals = Goals::default();
        let cell = goals.judge_in_cell("reads", &samples(&[1.0, 20.0, 90.0]), Goal::AtLeast(20.0));
        assert_eq!(cell, "20.0 (goal >= 20: met)");
        let cell = goals.judge_in_cell("starts", &samples(&[1.0, 1.6, 1.7]), Goal::AtMost(1.5));
        assert_eq!(cell, "1.60 (goal <= 1.5: **missed**)");
    }

    #[test]
    fn nan_meets_no_goal_and_unmeasured_goals_show_their_reason() {
        let mut goals = Goals::default();
        for goal in [Goal::AtLeast(0.0), Goal::AtMost(9.0)] {
            assert!(!goals.judge("", "", &Samples::new(), goal));
        }
        goals.ratio("", 9.0, (f64::NAN, String::new()), (1.0, ""));
        assert!(!goals.table().to_string().contains("| met |"));
        goals.unmeasured("sending", Goal::AtMost(1.0 / 6.0), "no nginx");
        let text = goals.table().to_string();
        assert!(
            text.contains("| sending | <= 0.167 | - |  |  | not measured: no nginx |"),
            "{text}"
        );
    }

    #[test]
    fn goals_with_units_print_them_and_their_ratio() {
        let mut goals = Goals::default();
        goals.ratio("commit", 1.25, (50.0, "50.0 us".into()), (40.0, "floor, us"));
        goals.at_most("open", (60.0, "us"), (90.0, "90.0 us".into()), "-".into());
        goals.at_least("look up", 10.0, (2.0, "2 ms".into()), (100.0, "build, ms"));
        let text = goals.table().to_string();
        for line in [
            "|  | goal | got | against | ratio |  |",
            "| commit | 1.25 x | 50.0 us | floor, us: 40.0 | 1.25 | met |",
            "| open | 60.0 us | 90.0 us | - | 1.50 | **missed** |",
            "| look up | 1 in 10 | 2 ms | build, ms: 100 | 50.0 | met |",
        ] {
            assert!(text.contains(line), "{line} in:\n{text}");
        }
    }

    #[test]
    fn goals_are_raw_figures_with_their_limit_and_result() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let mut raw = Raw::create(Some(file.path())).expect("a file");
        let mut goals = Goals::default();
        goals.judge("reads", "cp", &samples(&[3.0]), Goal::AtLeast(2.0));
        goals.write(&mut raw).expect("a line");
        let text = std::fs::read_to_string(file.path()).expect("a line");
        let read: serde_json::Value = serde_json::from_str(&text).expect("a line of JSON");
        assert_eq!((&read["goal"]["at_least"], &read["got"]["met"]), (&2.0.into(), &true.into()));
    }
}
