//! Reproduces a published simulation: its numbers next to those of the model over many seeds, and
//! its figures.
//!
//! Writes no files; figures and tables are returned as names and text.

use std::fmt::Write as _;

use serde::Serialize;

use crate::axis::Axis;
use crate::error::Error;
use crate::mode::Mode;
use crate::model::{Run, Summary};
use crate::parallel;
use crate::plan::Plan;
use crate::profile::Profile;
use crate::scenario::{Scenario, run_all};
use crate::spread::Spread;
use crate::sweep::{Sweep, csv_text};
use crate::targets::{Role, Target, Targets};
use crate::workload::{Counting, Workload};

/// Maximum number of seeds. Each takes about a million references at ten capacities.
const SEEDS_MAX: u32 = 100_000;
/// Seed of figure 6, which shows one run.
const FIRST_SEED: u64 = 1;

/// Published number and the model's result.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// Figure of the publication.
    pub figure: String,
    /// Description.
    pub name: String,
    /// Unit.
    pub unit: &'static str,
    /// Published value, or `None` if only the model has one.
    pub paper: Option<f64>,
    /// Mean over the seeds.
    pub mean: f64,
    /// 5th percentile over the seeds.
    pub p5: f64,
    /// 95th percentile over the seeds.
    pub p95: f64,
    /// Relation to the fitted parameters.
    pub role: Role,
    /// True if the mean is within the tolerance, or the published value is between the percentiles.
    pub is_met: Option<bool>,
    /// Explanation of the result.
    pub why: String,
}

/// Result of a reproduction.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Reproduction {
    /// Profile used.
    pub profile: Profile,
    /// Number of seeds, from 1 on.
    pub seeds: u32,
    /// Published and simulated numbers.
    pub rows: Vec<Row>,
    /// Figures and tables: names and contents.
    pub files: Vec<(String, String)>,
}

/// Reproduces the study behind profile `bahn2019` with seeds from 1 to `seeds`: its published
/// numbers and its figures 4 to 7. Takes about a million references per seed, on all cores.
///
/// # Errors
///
/// `seeds` is 0 or too large.
pub fn reproduce(seeds: u32) -> Result<Reproduction, Error> {
    let targets = Targets::bahn2019()?;
    reproduce_with(Profile::built_in(&targets.profile)?, &targets, seeds)
}

fn reproduce_with(profile: Profile, targets: &Targets, seeds: u32) -> Result<Reproduction, Error> {
    if seeds == 0 || seeds > SEEDS_MAX {
        let why = format!("it must be a whole number from 1 to {SEEDS_MAX}");
        return Err(Error::InvalidValue { key: "seeds".into(), value: seeds.to_string(), why });
    }
    let plan = Plan::of(targets, &profile)?;
    let cases = [(Mode::Blocking, "nand".to_string()), (Mode::Nonblocking, "pcram".to_string())];
    let sweep = |text: &str| Sweep::new(&profile, &cases, &[text.parse::<Axis>()?]);
    let (capacities, waits) = (sweep("capacity=10..100:10")?, sweep("wait=0..100:10")?);
    // Run all scenarios together, so that the references of each seed are counted once.
    let scenarios: Vec<Scenario> =
        [&plan.scenarios[..], capacities.scenarios(), waits.scenarios()].concat();
    let of_seeds = parallel::each(seeds as usize, |n| {
        let seed = FIRST_SEED + n as u64;
        run_all(&scenarios, &Workload::Drawn, seed, Counting::Exact, |run| run.summary)
    });
    let of_seeds: Vec<Vec<Summary>> = of_seeds.into_iter().collect::<Result<_, Error>>()?;
    let part = |from: usize, count: usize| -> Vec<&[Summary]> {
        of_seeds.iter().map(|summaries| &summaries[from..from + count]).collect()
    };
    let targets_end = plan.scenarios.len();
    let capacities_end = targets_end + capacities.scenarios().len();
    let values: Vec<Vec<f64>> =
        part(0, targets_end).into_iter().map(|summaries| plan.values(summaries)).collect();
    let rows = rows(targets, &values);
    let of_capacities = capacities.rows(&part(targets_end, capacities.scenarios().len()));
    let of_waits = waits.rows(&part(capacities_end, waits.scenarios().len()));
    let periods = cases
        .iter()
        .map(|(mode, device)| {
            Scenario::of(profile.clone(), *mode, device)?.run(&Workload::Drawn, FIRST_SEED)
        })
        .collect::<Result<Vec<Run>, Error>>()?;
    let mut files = vec![
        ("table.csv".to_string(), table_csv(&rows)),
        ("figure4.csv".to_string(), capacities.csv(&of_capacities)),
        ("figure5.csv".to_string(), waits.csv(&of_waits)),
        ("figure6.csv".to_string(), periods_csv(&periods)),
        ("figure7.csv".to_string(), table_csv(&of_figure_7(&rows))),
    ];
    files.extend(charts::all(&[&of_capacities, &of_waits], &periods, &rows, targets)?);
    files.sort();
    Ok(Reproduction { profile, seeds, rows, files })
}

fn rows(targets: &Targets, values: &[Vec<f64>]) -> Vec<Row> {
    let row = |(index, target): (usize, &Target)| {
        let Spread { mean, p5, p95 } =
            Spread::of(values.iter().map(|of_seed| of_seed[index]).collect());
        let is_near = target.tolerances_off(mean).is_some_and(|off| off.abs() <= 1.0);
        let is_met = target.value.map(|paper| is_near || (p5..=p95).contains(&paper));
        Row {
            figure: target.figure.clone(),
            name: target.name.clone(),
            unit: target.measure.unit(),
            paper: target.value,
            mean,
            p5,
            p95,
            role: target.role,
            is_met,
            why: target.why.clone(),
        }
    };
    targets.targets.iter().enumerate().map(row).collect()
}

fn of_figure_7(rows: &[Row]) -> Vec<Row> {
    rows.iter().filter(|row| row.figure == "7").cloned().collect()
}

fn table_csv(rows: &[Row]) -> String {
    let mut text = "figure,name,unit,paper,mean,p5,p95,role,is_met,why\n".to_string();
    for row in rows {
        let paper = row.paper.map(|paper| paper.to_string()).unwrap_or_default();
        let is_met = row.is_met.map(|is_met| is_met.to_string()).unwrap_or_default();
        let _ = writeln!(
            text,
            "{},{},{},{paper},{:.3},{:.3},{:.3},{},{is_met},{}",
            csv_text(&row.figure),
            csv_text(&row.name),
            csv_text(row.unit),
            row.mean,
            row.p5,
            row.p95,
            row.role.name(),
            csv_text(&row.why)
        );
    }
    text
}

fn periods_csv(runs: &[Run]) -> String {
    let mut text = "period,deadline_ms".to_string();
    for run in runs {
        let _ = write!(text, ",{}_{}_ms", run.mode, csv_text(&run.device));
    }
    text.push('\n');
    let deadline_ms = runs.first().map_or(0.0, |run| run.deadline_ms);
    for index in 0..runs.first().map_or(0, |run| run.frames.len()) {
        let _ = write!(text, "{index},{deadline_ms:.4}");
        for run in runs {
            let _ = write!(text, ",{:.4}", run.frames[index].completion_ms);
        }
        text.push('\n');
    }
    text
}

mod charts {
    //! Charts of the figures, with published values next to the model.

    use super::{Error, Role, Row, Run, Targets};
    use crate::measure::Measure;
    use crate::sweep::SweepRow;
    use evermap_plot::{BarChart, LineChart, Series};

    const BLOCKING: &str = "blocking, flash";
    const LANE: &str = "without blocking, PC-RAM";

    pub(crate) fn all(
        sweeps: &[&[SweepRow]; 2],
        periods: &[Run],
        rows: &[Row],
        targets: &Targets,
    ) -> Result<Vec<(String, String)>, Error> {
        let missed = |title: &str, x_label: &str, rows: &[SweepRow], published: Vec<(f64, f64)>| {
            let (blocking, lane) = rows.split_at(rows.len() / 2);
            let line = |name: &str, rows: &[SweepRow]| Series {
                name: name.into(),
                points: rows.iter().map(|row| (row.at[0], row.missed_percent)).collect(),
            };
            LineChart {
                title: title.into(),
                x_label: x_label.into(),
                y_label: "deadlines missed [%]".into(),
                x_range: Some((0.0, 104.0)),
                y_range: Some((-3.0, 103.0)),
                series: vec![
                    line(BLOCKING, blocking),
                    line(LANE, lane),
                    Series { name: "published".into(), points: published },
                ],
                ..LineChart::default()
            }
        };
        let [capacities, waits] = sweeps;
        let figure_4 = missed(
            "Deadlines missed by cache capacity",
            "cache capacity [% of the footprint]",
            capacities,
            // A gap between the points: only two points are published, and no line between them.
            vec![(80.0, 50.0), (f64::NAN, f64::NAN), (80.0, 0.0)],
        );
        let figure_5 = missed(
            "Deadlines missed by wait for the processor",
            "wait per request [% of a time slice]",
            waits,
            vec![(20.0, 84.0)],
        );
        Ok(vec![
            ("figure4.svg".into(), figure_4.svg()?),
            ("figure5.svg".into(), figure_5.svg()?),
            ("figure6.svg".into(), completions(periods).svg()?),
            ("figure7.svg".into(), utilisation(rows, targets).svg()?),
        ])
    }

    fn completions(runs: &[Run]) -> LineChart {
        let line = |(run, name): (&Run, &str)| {
            let points = run.frames.iter().enumerate();
            let points = points.map(|(n, frame)| (n as f64, frame.completion_ms)).collect();
            Series { name: name.into(), points }
        };
        let deadline_ms = runs.first().map_or(0.0, |run| run.deadline_ms);
        LineChart {
            title: "Completion of each period, first seed".into(),
            x_label: "period".into(),
            y_label: "completion [ms]".into(),
            series: runs.iter().zip([BLOCKING, LANE]).map(line).collect(),
            levels: vec![(deadline_ms, format!("deadline, {deadline_ms:.2} ms"))],
            ..LineChart::default()
        }
    }

    /// Draws figure 7: published and simulated changes, at the capacity of all figures.
    fn utilisation(rows: &[Row], targets: &Targets) -> BarChart {
        let with_targets = rows.iter().zip(&targets.targets);
        let shown: Vec<&Row> = with_targets
            .filter(|(_, target)| target.measure == Measure::UtilisationChangePercent)
            .filter(|(row, _)| row.role != Role::Reading)
            .map(|(row, _)| row)
            .collect();
        BarChart {
            title: "Utilisation of the cores, nonblocking compared with blocking".into(),
            y_label: "change [percentage points]".into(),
            groups: shown
                .iter()
                .map(|row| row.name.split(':').next().unwrap_or_default().into())
                .collect(),
            series: vec![
                (
                    "published".into(),
                    shown.iter().map(|row| row.paper.unwrap_or(f64::NAN)).collect(),
                ),
                ("model".into(), shown.iter().map(|row| row.mean).collect()),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    /// Rows for the table of the documentation, which shows means over this number of seeds.
    static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| reproduce(200).unwrap().rows);

    /// Returns the row whose name contains `name`.
    fn row(name: &str) -> &'static Row {
        let found = ROWS.iter().find(|row| row.name.contains(name));
        found.unwrap_or_else(|| panic!("{name}"))
    }

    #[test]
    fn a_reproduction_is_deterministic() {
        assert_eq!(reproduce(3).unwrap(), reproduce(3).unwrap());
        assert!(reproduce(0).is_err() && reproduce(u32::MAX).is_err());
    }

    #[test]
    fn unmatched_targets_are_not_matched() {
        let mean = |name: &str| row(name).mean;
        // Flash loses less than published, although its completions are nearly as late as
        // published.
        assert!(mean("flash: utilisation") > -35.0);
        assert!((mean("blocking on flash: completion") - 22.0).abs() < 5.0);
        // At the capacity where flash loses as much, PC-RAM loses too much.
        assert!((mean("flash: the same at 70 %") + 38.0).abs() < 1.5);
        assert!(mean("PC-RAM: the same at 70 %") < -6.0);
        assert!(mean("context switches as overhead") > 0.0);
        // A wait as described in the text is too much for figures 4 and 6.
        assert!(mean("with a wait of 5 %") > 58.0 && mean("with a wait of 50 %") > 90.0);
        assert!(mean("lateness of the missed") > 44.0);
        let without = mean("without garbage collection");
        let with = mean("missed at 80 % capacity");
        assert!(without < with && without > with - 4.0, "{without} and {with}");
        assert!(mean("read from the device") > 100.0);
    }

    #[test]
    fn each_number_is_as_close_to_the_published_one_as_documented() {
        for (name, off) in [
            ("blocking on flash: missed at 80 %", 1.35),
            ("PC-RAM without blocking: missed at 80 %", 0.3),
            ("fewer missed", 3.35),
            ("missed with a wait of 20 %", 1.9),
            ("blocking on flash: missed of 150", 1.05),
            ("blocking on flash: completion", 2.0),
            ("PC-RAM without blocking: completion", 2.0),
            ("PC-RAM without blocking: missed of 150", 0.5),
            ("PC-RAM: utilisation without", 0.95),
            ("disk: utilisation without", 0.6),
            ("flash: utilisation without", 6.0),
        ] {
            let (mean, paper) = (row(name).mean, row(name).paper.unwrap());
            assert!((mean - paper).abs() <= off, "{name}: {mean} for {paper}");
        }
    }

    #[test]
    fn every_published_number_has_a_row_and_every_figure_is_drawn() {
        let made = reproduce(5).unwrap();
        assert_eq!(made.rows.len(), Targets::bahn2019().unwrap().targets.len());
        assert!(
            made.rows.iter().all(|row| row.p5 <= row.mean + 1e-9 && row.mean <= row.p95 + 1e-9)
        );
        for figure in 4..=7 {
            let find = |name: String| made.files.iter().find(|(found, _)| *found == name);
            assert!(find(format!("figure{figure}.csv")).unwrap().1.lines().count() > 3);
            assert!(find(format!("figure{figure}.svg")).unwrap().1.contains("</svg>"));
        }
    }
}
