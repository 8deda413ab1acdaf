//! Ladder: the benefit of each part of a lane for programs of 24, 60 and 1,000 periods a second,
//! beside four programs that compute and two that write. In each period a program reads 128 KiB (16
//! KiB at 1,000) and computes for 10.5, 4 or 0.25 ms. Each rung has at least 500 periods, in turns.
//!
//! Draws the completion times of the periods (`lane-completion-24.svg` and so on) and the missed
//! deadlines (`lane-missed.svg`).

use evermap_lane::bench::{PRESETS, Results, Rung};
use harness::Outcome;
use harness::goals::Goal;
use harness::samples::{Samples, figure};
use harness::table::Table;

use super::{missed, say_notes, write_turns};
use crate::bench::{self, Bench, HOGS};

const PERIODS: u64 = 500;

/// Rungs whose single periods are drawn. More of them would hide each other.
const DRAWN: [Rung; 4] =
    [Rung::OrdinaryBlocking, Rung::LendBlocking, Rung::LendNowait, Rung::LendMap];

/// Most deadlines that may be missed, in percent.
const GOALS: [(Rung, [f64; 3]); 2] =
    [(Rung::LendMap, [0.0, 0.0, 0.1]), (Rung::LendNowait, [0.0, 0.0, 0.2])];

pub fn report(bench: &mut Bench) -> Outcome {
    let titles = [
        "rung",
        "missed",
        "completion p50",
        "p99",
        "p99.9",
        "max",
        "wake-up p99",
        "I/O p99",
        "I/O max",
        "host took the core",
    ];
    let mut drawn = Vec::new();
    for (at, preset) in PRESETS.into_iter().enumerate() {
        let load = bench::load(bench, HOGS)?;
        let periods = bench.options.scaled(PERIODS, 12);
        let results = bench::climb(bench, preset, &Rung::ALL, &[], load, periods)?;
        println!("\n{} periods a second (ms):\n", preset.fps);
        let mut table = Table::new(&titles);
        for cell in &results.cells {
            let ms = |value: f64| figure(value);
            table.row(&[
                cell.name.clone(),
                missed(cell),
                ms(cell.completion_ms.p50),
                ms(cell.completion_ms.p99),
                ms(cell.completion_ms.p999),
                ms(cell.completion_ms.max),
                ms(cell.wake_up_ms.p99),
                ms(cell.io_ms.p99),
                ms(cell.io_ms.max),
                cell.stolen_ms.map_or(String::new(), |stolen| format!("{stolen:.0}")),
            ]);
        }
        println!("{table}");
        say_notes(&results);
        write_turns(bench, "ladder", &preset.fps.to_string(), &results)?;
        judge(bench, &results, at);
        drawn.push(results);
    }
    draw(bench, drawn)
}

fn judge(bench: &mut Bench, results: &Results, at: usize) {
    for (rung, goals) in GOALS {
        let Some(cell) = results.cells.iter().find(|cell| cell.subject.rung == Some(rung)) else {
            continue;
        };
        let mut share = Samples::new();
        share.push(cell.missed_percent);
        let what = format!("{} at {} a second: missed, percent", cell.name, cell.preset.fps);
        let base =
            results.cells.iter().find(|cell| cell.subject.rung == Some(Rung::OrdinaryBlocking));
        let peer =
            base.map_or(String::new(), |cell| format!("ordinary: {}", figure(cell.missed_percent)));
        bench.goals.judge(&what, &peer, &share, Goal::AtMost(goals[at]));
    }
}

fn draw(bench: &Bench, all: Vec<Results>) -> Outcome {
    for results in &all {
        let mut few = results.clone();
        few.cells.retain(|cell| cell.subject.rung.is_some_and(|rung| DRAWN.contains(&rung)));
        for (name, svg) in few.svgs()? {
            if name.starts_with("completion") {
                bench.draw(&format!("lane-{name}"), &svg)?;
            }
        }
    }
    let rungs: Vec<String> = all
        .first()
        .map_or(Vec::new(), |results| results.cells.iter().map(|cell| cell.name.clone()).collect());
    let series = all
        .iter()
        .map(|results| {
            let fps = results.cells.first().map_or(0, |cell| cell.preset.fps);
            let shares = results.cells.iter().map(|cell| cell.missed_percent).collect();
            (format!("{fps} a second"), shares)
        })
        .collect();
    let chart = evermap_plot::BarChart {
        title: "Missed deadlines beside four that compute and two that write".into(),
        y_label: "missed [%]".into(),
        groups: rungs,
        series,
    };
    bench.draw("lane-missed.svg", &chart.svg()?)
}
