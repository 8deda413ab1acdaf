//! Sweeps: varies one or two parameters. Makes a table and a chart of misses.

use std::fmt::Write as _;

use evermap_plot::{LineChart, Series};
use serde::Serialize;

use crate::axis::{Axis, VALUES_MAX};
use crate::error::Error;
use crate::error::at_most;
use crate::mode::Mode;
use crate::model::Summary;
use crate::parallel;
use crate::profile::Profile;
use crate::scenario::{Scenario, run_all};
use crate::spread::Spread;
use crate::workload::{Counting, Workload};

/// Maximum number of runs of a sweep, which bounds the run time.
const RUNS_MAX: u64 = 1_000_000;

/// Variation of one or two parameters.
#[derive(Clone, Debug)]
pub struct Sweep {
    profile: String,
    axes: Vec<Axis>,
    scenarios: Vec<Scenario>,
}

/// One point of a sweep: means and percentiles over its runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SweepRow {
    /// Mode of the program.
    pub mode: Mode,
    /// Name of the device.
    pub device: String,
    /// Values of the axes' parameters.
    pub at: Vec<f64>,
    /// Share of frames that missed their deadline.
    pub missed_percent: f64,
    /// 5th percentile over the runs.
    pub missed_percent_p5: f64,
    /// 95th percentile over the runs.
    pub missed_percent_p95: f64,
    /// Mean completion time.
    pub completion_ms_mean: f64,
    /// Mean over the runs of their 99th percentile.
    pub completion_ms_p99: f64,
    /// Utilisation of all cores, with context switches as work.
    pub utilisation_percent: f64,
    /// Utilisation of all cores, with context switches as overhead.
    pub utilisation_less_switches_percent: f64,
}

impl Sweep {
    /// Creates a sweep over one or two axes, for each case (a mode and a device).
    ///
    /// # Errors
    ///
    /// There are no axes, more than two, or twice the same; a device is unknown; or there are too
    /// many points.
    pub fn new(profile: &Profile, cases: &[(Mode, String)], axes: &[Axis]) -> Result<Self, Error> {
        let wrong =
            |axis: &Axis, why: &str| Error::Axis { text: axis.parameter().into(), why: why.into() };
        let inner = match axes {
            [] => {
                let why = "give at least one parameter".into();
                return Err(Error::Axis { text: String::new(), why });
            }
            [_] => None,
            [first, second] if first.parameter() == second.parameter() => {
                return Err(wrong(first, "it is given twice"));
            }
            [_, second] => Some(second),
            [_, _, third, ..] => return Err(wrong(third, "at most two parameters can vary")),
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

    /// Simulates each point with `runs` consecutive seeds from `seed`. Rows are ordered by case,
    /// then by the second axis, then by the first.
    ///
    /// # Errors
    ///
    /// `runs` is 0, or there are too many runs.
    pub fn run(&self, workload: &Workload, seed: u64, runs: u32) -> Result<Vec<SweepRow>, Error> {
        if runs == 0 {
            let (key, value) = ("seeds".to_string(), "0".to_string());
            return Err(Error::InvalidValue {
                key,
                value,
                why: "it must be at least 1 run per point".into(),
            });
        }
        let count = u64::from(runs) * self.scenarios.len() as u64;
        at_most("runs of a sweep", count, RUNS_MAX, "take larger steps, or fewer runs per point")?;
        let of_seeds = parallel::each(runs as usize, |n| {
            let seed = seed.wrapping_add(n as u64);
            run_all(&self.scenarios, workload, seed, Counting::Exact, |run| run.summary)
        });
        let of_seeds = of_seeds.into_iter().collect::<Result<Vec<_>, Error>>()?;
        Ok(self.rows(&of_seeds.iter().map(Vec::as_slice).collect::<Vec<_>>()))
    }

    pub(crate) fn scenarios(&self) -> &[Scenario] {
        &self.scenarios
    }

    /// Computes the rows from the summaries of all scenarios for each seed.
    pub(crate) fn rows(&self, of_seeds: &[&[Summary]]) -> Vec<SweepRow> {
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

    /// Formats the rows as comma-separated values with a header.
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

    /// Draws misses over the first axis, with a line for each case and each value of the second
    /// axis.
    pub fn chart(&self, rows: &[SweepRow]) -> LineChart {
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

    /// Returns the name of the profile.
    pub fn profile(&self) -> &str {
        &self.profile
    }
}

/// Quotes a CSV field if necessary.
pub(crate) fn csv_text(text: &str) -> String {
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
        // A point does not depend on the other points.
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
        assert_eq!(sweep.chart(&rows).series.len(), 4);
    }

    #[test]
    fn sweeps_over_no_axis_equal_axes_or_three_axes_are_refused() {
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
