//! Missed deadlines and cost against the tier's latency: every 4 KiB of the tier take longer, up to
//! a millisecond, and the program keeps its core during the wait. This measures the study's figure
//! 7: the loss of other programs when a program does not release its core while it waits for a
//! device. The load is the benchmark's own hogs, whose work is counted.
//!
//! Draws `lane-latency-missed.svg` and `lane-latency-cost.svg`.

use evermap_lane::bench::{PRESETS, Rung};
use evermap_plot::{Kind, LineChart, Series};
use harness::Outcome;
use harness::samples::figure;
use harness::table::Table;

use super::{missed, say_notes, write_turns};
use crate::bench::{self, Bench, HOGS};

/// Latency of each 4 KiB, and a device with that latency, from the simulator's profiles.
const LATENCIES_NS: [(u64, &str); 9] = [
    (3_200, "PC-RAM: 50 ns for 64 bytes"),
    (10_000, ""),
    (25_000, "NAND: 25 us a page"),
    (50_000, ""),
    (100_000, ""),
    (200_000, ""),
    (280_000, "HDD: 8 ms and 0.03 ms a page for 128 KiB"),
    (500_000, ""),
    (1_000_000, ""),
];
const PERIODS: u64 = 500;

pub fn report(bench: &mut Bench) -> Outcome {
    let mut missed_series = Vec::new();
    let mut cost_series = Vec::new();
    let count = bench.options.scaled(LATENCIES_NS.len(), 2);
    let injected: Vec<u64> = LATENCIES_NS.iter().take(count).map(|(ns, _)| *ns).collect();
    for preset in PRESETS.into_iter().take(2) {
        let load = bench::counted_load(HOGS);
        let periods = bench.options.scaled(PERIODS, 12);
        let results = bench::climb(bench, preset, &[Rung::LendMap], &injected, load, periods)?;
        write_turns(bench, "latency", &preset.fps.to_string(), &results)?;
        let titles = [
            "time of 4 KiB",
            "a device",
            "missed",
            "completion p50 (ms)",
            "p99",
            "the program's share of the cores",
            "others' work lost",
        ];
        let mut table = Table::new(&titles);
        let (mut missed_points, mut cost_points) = (Vec::new(), Vec::new());
        for cell in &results.cells {
            let ns = cell.subject.inject_ns_per_4k;
            let device =
                LATENCIES_NS.iter().find(|(of, _)| *of == ns).map_or("", |(_, name)| *name);
            let lost = lost_percent(cell.units_per_s.computed, cell.units_alone_per_s.computed);
            table.row(&[
                format!("{} us", figure(ns as f64 / 1e3)),
                device.to_string(),
                missed(cell),
                figure(cell.completion_ms.p50),
                figure(cell.completion_ms.p99),
                format!("{} %", figure(cell.own_percent)),
                format!("{} %", figure(lost)),
            ]);
            missed_points.push((ns as f64 / 1e3, cell.missed_percent));
            cost_points.push((ns as f64 / 1e3, lost));
        }
        println!("\n{} periods a second of 128 KiB:\n\n{table}", preset.fps);
        say_notes(&results);
        let name = format!("{} a second", preset.fps);
        missed_series.push(Series { name: name.clone(), points: missed_points });
        cost_series.push(Series { name, points: cost_points });
    }
    let chart = |title: &str, y_label: &str, series| LineChart {
        title: title.into(),
        x_label: "injected into every 4 KiB [us]".into(),
        y_label: y_label.into(),
        x_range: None,
        y_range: Some((0.0, 100.0)),
        log_y: false,
        series,
        levels: Vec::new(),
        kind: Kind::Lines,
    };
    let svg =
        chart("Missed deadlines against the tier's latency", "missed [%]", missed_series).svg()?;
    bench.draw("lane-latency-missed.svg", &svg)?;
    let title = "Lost work of other programs while a program keeps its core";
    let svg = chart(title, "work lost [%]", cost_series).svg()?;
    bench.draw("lane-latency-cost.svg", &svg)
}

/// Work that the other programs lost, in percent of their work alone.
fn lost_percent(beside: f64, alone: f64) -> f64 {
    (1.0 - beside / alone) * 100.0
}
