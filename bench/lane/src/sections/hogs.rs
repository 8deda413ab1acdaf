//! Missed deadlines against the number of computing programs, 0 to 8, beside two that write: the
//! study's figure 5, measured. The study varies the time that a program waits for the processor;
//! this section varies the number of programs it waits for.
//!
//! Draws `lane-hogs-24.svg` and `lane-hogs-60.svg`.

use evermap_lane::bench::{PRESETS, Rung};
use evermap_plot::{Kind, LineChart, Series};
use harness::Outcome;
use harness::samples::figure;
use harness::table::Table;

use super::{say_notes, write_turns};
use crate::bench::{self, Bench};

const RUNGS: [Rung; 4] =
    [Rung::OrdinaryBlocking, Rung::OrdinaryMap, Rung::LendBlocking, Rung::LendMap];
const PERIODS: u64 = 500;

pub fn report(bench: &mut Bench) -> Outcome {
    let most = bench.options.scaled(8, 2);
    for preset in PRESETS.into_iter().take(2) {
        let mut series: Vec<Series> = Vec::new();
        let mut table = Table::new(&[
            "computing programs",
            "ordinary-blocking",
            "ordinary-map",
            "lend-blocking",
            "lend-map",
        ]);
        for hogs in 0..=most {
            let load = bench::load(bench, hogs)?;
            let periods = bench.options.scaled(PERIODS, 12);
            let results = bench::climb(bench, preset, &RUNGS, &[], load, periods)?;
            write_turns(bench, "hogs", &format!("{} a second, {hogs}", preset.fps), &results)?;
            let mut row = vec![hogs.to_string()];
            for cell in &results.cells {
                row.push(format!("{} %", figure(cell.missed_percent)));
                let point = (hogs as f64, cell.missed_percent);
                match series.iter_mut().find(|series| series.name == cell.name) {
                    Some(series) => series.points.push(point),
                    None => series.push(Series { name: cell.name.clone(), points: vec![point] }),
                }
            }
            table.row(&row);
            say_notes(&results);
        }
        println!("\n{} periods a second, missed:\n\n{table}", preset.fps);
        let chart = LineChart {
            title: format!("Missed deadlines against computing programs, {} a second", preset.fps),
            x_label: "programs that compute".into(),
            y_label: "missed [%]".into(),
            x_range: None,
            y_range: Some((0.0, 100.0)),
            log_y: false,
            series,
            levels: Vec::new(),
            kind: Kind::Lines,
        };
        bench.draw(&format!("lane-hogs-{}.svg", preset.fps), &chart.svg()?)?;
    }
    Ok(())
}
