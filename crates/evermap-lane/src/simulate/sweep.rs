//! One or two parameters over a range: a table, and a chart of misses.

use std::fmt::Write as _;

use serde::Serialize;

use super::Error;
use super::axis::{Axis, VALUES_MAX};
use super::error::at_most;
use super::model::{Mode, Summary};
use super::parallel;
use super::profile::Profile;
use super::scenario::{Scenario, run_all};
use super::spread::Spread;
use super::workload::{Counting, Workload};

/// The runs of a sweep: so that it ends in a sensible time.
const RUNS_MAX: u64 = 1_000_000;

/// What a sweep goes over.
#[derive(Clone, Debug)]
pub struct Sweep {
    profile: String,
    axes: Vec<Axis>,
    scenarios: Vec<Scenario>,
}

/// One point of a sweep: means over its runs, and how far runs are apart.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SweepRow {
    /// Whether the program blocked.
    pub mode: Mode,
    /// What it read from.
    pub device: String,
    /// What the axes' parameters were.
    pub at: Vec<f64>,
    /// Deadlines missed.
    pub missed_percent: f64,
    /// One of 20 runs missed no more than this.
    pub missed_percent_p5: f64,
    /// 19 of 20 runs missed no more than this.
    pub missed_percent_p95: f64,
    /// The mean completion.
    pub completion_ms_mean: f64,
    /// 99 of 100 frames took no longer; the mean over the runs.
    pub completion_ms_p99: f64,
    /// Of all cores, context switches as work.
    pub utilisation_percent: f64,
    /// Of all cores, context switches as overhead.
    pub utilisation_less_switches_percent: f64,
}

impl Sweep {
    /// Over one or two axes, for each of the cases (a mode and a device).
    ///
    /// # Errors
    ///
    /// None or more than two axes, twice the same one, no case, a device that isn't there, or more points than end in a sensible time.
    pub fn new(profile: &Profile, cases: &[(Mode, String)], axes: &[Axis]) -> Result<Self, Error> {
        let wrong =
            |axis: &Axis, why: &str| Error::Axis { text: axis.parameter().into(), why: why.into() };
        let inner = match axes {
            [] => {
                let why = "one parameter at least is varied".into();
                return Err(Error::Axis { text: String::new(), why });
            }
            [_] => None,
            [first, second] if first.parameter() == second.parameter() => {
                return Err(wrong(first, "it is named twice"));
            }
            [_, second] => Some(second),
            [_, _, third, ..] => return Err(wrong(third, "two parameters at most are varied")),
        };
        let outer = &axes[0];
        let points =
            outer.values().len() as u64 * inner.map_or(1, |axis| axis.values().len() as u64);
        let count = points * cases.len() as u64;
        at_most("points of a sweep", count, VALUES_MAX, "take larger steps, or fewer devices")?;
        let mut scenarios = Vec::new();
        for (mode, device) in cases {
            for &value in inner.map_or(&[0.0][..], Axis::values) {
                let mut profile = profile.clone();
                if let Some(inner) = inner {
                    profile.set(inner.parameter(), value)?;
                }
                for &value in outer.values() {
                    profile.set(outer.parameter(), value)?;
                    scenarios.push(Scenario::of(profile.clone(), *mode, device)?);
                }
            }
        }
        Ok(Self { profile: profile.name().into(), axes: axes.to_vec(), scenarios })
    }

    /// Simulates each point with `runs` seeds from this one on. The rows are those of the first case first, by the second axis, then by the first.
    ///
    /// # Errors
    ///
    /// None, or more runs than end in a sensible time.
    pub fn run(&self, workload: &Workload, seed: u64, runs: u32) -> Result<Vec<SweepRow>, Error> {
        if runs == 0 {
            let (key, value) = ("seeds".to_string(), "0".to_string());
            return Err(Error::Impossible {
                key,
                value,
                why: "it is 1 or more runs a point".into(),
            });
        }
        let count = u64::from(runs) * self.scenarios.len() as u64;
        at_most("runs of a sweep", count, RUNS_MAX, "take larger steps, or fewer runs a point")?;
        let of_seeds = parallel::each(runs as usize, |n| {
            let seed = seed.wrapping_add(n as u64);
            run_all(&self.scenarios, workload, seed, Counting::Exact, |run| run.summary)
        });
        let of_seeds = of_seeds.into_iter().collect::<Result<Vec<_>, Error>>()?;
        Ok(self.rows(&of_seeds.iter().map(Vec::as_slice).collect::<Vec<_>>()))
    }

    pub(super) fn scenarios(&self) -> &[Scenario] {
        &self.scenarios
    }

    /// The rows of what its scenarios came to, with each seed.
    pub(super) fn rows(&self, of_seeds: &[&[Summary]]) -> Vec<SweepRow> {
        let mut rows = Vec::with_capacity(self.scenarios.len());
        let outer = self.axes[0].values();
        for (index, scenario) in self.scenarios.iter().enumerate() {
            let mut at = vec![outer[index % outer.len()]];
            if let Some(inner) = self.axes.get(1) {
                at.push(inner.values()[index / outer.len() % inner.values().len()]);
            }
            let all = |part: &dyn Fn(&Summary) -> f64| -> Spread {
                Spread::of(of_seeds.iter().map(|of_seed| part(&of_seed[index])).collect())
            };
            let missed = all(&|summary| summary.missed_percent);
            rows.push(SweepRow {
                mode: scenario.mode(),
                device: scenario.device_name().into(),
                at,
                missed_percent: missed.mean,
                missed_percent_p5: missed.p5,
                missed_percent_p95: missed.p95,
                completion_ms_mean: all(&|summary| summary.completion_ms.mean).mean,
                completion_ms_p99: all(&|summary| summary.completion_ms.p99).mean,
                utilisation_percent: all(&|summary| summary.utilisation_percent).mean,
                utilisation_less_switches_percent: all(&|summary| {
                    summary.utilisation_less_switches_percent
                })
                .mean,
            });
        }
        rows
    }

    /// The rows as comma-separated values, with a head.
    pub fn csv(&self, rows: &[SweepRow]) -> String {
        let mut text = "mode,device".to_string();
        self.axes.iter().for_each(|axis| text.extend([",", axis.parameter()]));
        text.push_str(
            ",missed_percent,missed_percent_p5,missed_percent_p95,completion_ms_mean,completion_ms_p99,\
             utilisation_percent,utilisation_less_switches_percent\n",
        );
        for row in rows {
            let _ = write!(text, "{},{}", row.mode, csv_text(&row.device));
            for value in &row.at {
                let _ = write!(text, ",{value}");
            }
            for value in [
                row.missed_percent,
                row.missed_percent_p5,
                row.missed_percent_p95,
                row.completion_ms_mean,
                row.completion_ms_p99,
                row.utilisation_percent,
                row.utilisation_less_switches_percent,
            ] {
                let _ = write!(text, ",{value:.4}");
            }
            text.push('\n');
        }
        text
    }

    /// Misses over the first axis; a line for each case and each value of the second.
    #[cfg(feature = "plots")]
    pub fn chart(&self, rows: &[SweepRow]) -> crate::plot::LineChart {
        use crate::plot::{LineChart, Series};

        let per_line = self.axes[0].values().len();
        let lines = rows.chunks(per_line).map(|line| {
            let mut name = format!("{}, {}", line[0].mode, line[0].device);
            if let (Some(axis), Some(value)) = (self.axes.get(1), line[0].at.get(1)) {
                let _ = write!(name, ", {} {value}", axis.parameter());
            }
            let points = line.iter().map(|row| (row.at[0], row.missed_percent)).collect();
            Series { name, points }
        });
        LineChart {
            title: format!("Deadlines missed, profile {}", self.profile),
            x_label: self.axes[0].label(),
            y_label: "deadlines missed [%]".into(),
            y_range: Some((0.0, 100.0)),
            series: lines.collect(),
            ..LineChart::default()
        }
    }

    /// The name of the profile that it varies.
    pub fn profile(&self) -> &str {
        &self.profile
    }
}

/// Quoted where it has to be.
pub(super) fn csv_text(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Profile {
        let mut profile = Profile::built_in("bahn2019").unwrap();
        profile.set("frames", 20.0).unwrap();
        profile
    }

    fn axes(texts: &[&str]) -> Vec<Axis> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn two_axes_and_two_cases_have_a_row_for_each_combination() {
        let cases = [(Mode::Blocking, "nand".into()), (Mode::Nonblocking, "pcram".into())];
        let sweep =
            Sweep::new(&small(), &cases, &axes(&["capacity=0,50,100", "wait=0,20"])).unwrap();
        let rows = sweep.run(&Workload::Drawn, 1, 3).unwrap();
        let at: Vec<(Mode, &[f64])> = rows.iter().map(|row| (row.mode, &row.at[..])).collect();
        assert_eq!(at.len(), 12);
        assert_eq!(at[4], (Mode::Blocking, &[50.0, 20.0][..]));
        assert_eq!(at[9], (Mode::Nonblocking, &[0.0, 20.0][..]));
        // What a point is doesn't depend on the points beside it.
        let mut profile = small();
        profile.set("capacity", 50.0).unwrap();
        profile.set("wait", 20.0).unwrap();
        let alone = Scenario::new(profile).unwrap();
        let missed = |seed| alone.run(&Workload::Drawn, seed).unwrap().summary.missed_percent;
        let mean = (1..=3).map(missed).sum::<f64>() / 3.0;
        assert!((rows[4].missed_percent - mean).abs() < 1e-9);
        let csv = sweep.csv(&rows);
        assert_eq!(csv.lines().count(), 13);
        assert!(csv.starts_with("mode,device,cache.capacity_percent,io.wait_percent,missed"));
        #[cfg(feature = "plots")]
        assert_eq!(sweep.chart(&rows).series.len(), 4);
    }

    #[test]
    fn sweeps_over_nothing_over_the_same_twice_and_over_three_are_refused() {
        let cases = [(Mode::Blocking, "nand".to_string())];
        for texts in [&[][..], &["wait=0", "wait=1"], &["wait=0", "slice=1", "capacity=5"]] {
            assert!(matches!(Sweep::new(&small(), &cases, &axes(texts)), Err(Error::Axis { .. })));
        }
        let tape = [(Mode::Blocking, "tape".to_string())];
        assert!(matches!(
            Sweep::new(&small(), &tape, &axes(&["wait=0"])),
            Err(Error::UnknownDevice { .. })
        ));
    }
}
