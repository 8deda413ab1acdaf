//! Repeats the paper's comparison: ten files by splice and by dual pipe, time per file and average
//! data rate.
//!
//! It measures whole processes first. If the command has `evermap bench transfer`, it then measures
//! inside a running process, because the start of a process dominates the time of a small file.
//! Inside a process, the command makes the files itself, so the sparse file is missing there.

use std::path::Path;

use harness::Outcome;
use harness::bench::skip_on_error;
use harness::plots::lines::Lines;
use harness::samples::{Samples, figure};
use harness::table::Table;
use harness::units::{bytes_per_ms, grouped, megabytes_per_second, size};

use super::{DUAL, ONE, Row, cells::cell};
use crate::bench::Bench;
use crate::compete::compete;
use crate::corpus::{self, Entry, Kind};
use crate::in_process::{InProcess, Request};
use crate::subjects::Subject;

const NAMES: [&str; 2] = [ONE, DUAL];

pub fn report(bench: &mut Bench, program: &Path) -> Outcome {
    let Some(volume) = bench.volume("ext4") else { return Ok(()) };
    let pair = NAMES.map(|engine| Subject::evermap(program, Some(engine), None));
    println!("### The paper's comparison: ten files, warm, same file system\n");
    let entries = corpus::entries(bench.options.quick, &bench.options.sizes_bytes);
    let mut rows = Vec::new();
    for entry in &entries {
        let source = entry.make(volume.folder())?;
        let cell = cell(&format!("paper, {}", entry.name()), source, &volume, entry.bytes, false);
        let standings = compete(bench, &cell, &pair)?;
        rows.push(Row::of(&standings, &pair, &entry.name()));
    }
    println!("Whole processes:\n\n{}", rates(&rows));
    let dense = entries.iter().zip(&rows).filter(|(entry, _)| entry.kind != Kind::Sparse);
    let outside: Vec<Row> = dense.map(|(_, row)| row.clone()).collect();
    let inside = match InProcess::find(program) {
        Some(inside) => {
            let rows = inside_rows(bench, &inside, &entries, volume.folder());
            skip_on_error("inside a process", rows).unwrap_or_default()
        }
        None => {
            println!(
                "The command has no `evermap bench transfer`: nothing is measured inside a process.\n"
            );
            Vec::new()
        }
    };
    if !inside.is_empty() {
        println!("Inside a running process:\n\n{}", rates(&inside));
    }
    draw(bench, if inside.is_empty() { &outside } else { &inside })
}

/// Returns a row for each size.
fn inside_rows(
    bench: &mut Bench,
    inside: &InProcess,
    entries: &[Entry],
    folder: &Path,
) -> Outcome<Vec<Row>> {
    let dense = entries.iter().filter(|entry| entry.kind != Kind::Sparse);
    let sizes_bytes: Vec<u64> = dense.map(|entry| entry.bytes).collect();
    let rounds = bench.options.rounds;
    let request = Request { engines: &NAMES, sizes_bytes: &sizes_bytes, rounds, folder };
    let cells = inside.measure(bench, "pipes", request)?;
    let row = |bytes: &u64| {
        let wall = |engine: &&str| {
            let mut of_size = cells.iter().filter(|cell| cell.size_bytes == *bytes);
            of_size.find(|cell| cell.engine == **engine)?.wall_ms()
        };
        let walls_ms: Vec<Option<Samples>> = NAMES.iter().map(wall).collect();
        let first = walls_ms[0].as_ref().map(Samples::median);
        let ratio = |wall: &Option<Samples>| {
            // The rounds are sorted by time there, so only medians can be compared.
            let mut ratio = Samples::new();
            ratio.push(first? / wall.as_ref()?.median());
            Some(ratio)
        };
        let ratios = walls_ms.iter().map(ratio).collect();
        Row { name: size(*bytes), bytes: *bytes, walls_ms, ratios }
    };
    Ok(sizes_bytes.iter().map(row).collect())
}

fn draw(bench: &Bench, rows: &[Row]) -> Outcome {
    let series = NAMES.iter().enumerate().map(|(index, name)| {
        let point = |row: &Row| {
            let wall = row.walls_ms.get(index)?.as_ref()?;
            Some((row.bytes, bytes_per_ms(row.bytes, wall.median())))
        };
        (name.to_string(), rows.iter().filter_map(point).collect())
    });
    let lines = Lines {
        title: "Splice and dual pipe: data rate by size of file".to_string(),
        meaning: "bytes a millisecond, warm, same file system (medians); more is better"
            .to_string(),
        series: series.collect(),
    };
    bench.draw("transfer-pipes-rate.svg", &lines.svg()?)
}

/// Table of time per file and data rate, with the average of the rates at the end.
fn rates(rows: &[Row]) -> Table {
    let mut head = vec!["".to_string()];
    for name in NAMES {
        head.extend([format!("{name}, ms"), format!("{name}, bytes/ms"), format!("{name}, MB/s")]);
    }
    head.push(format!("{} / {}", NAMES[1], NAMES[0]));
    let mut table = Table::new(&head);
    let mut averages = [Samples::new(), Samples::new()];
    for row in rows {
        let mut cells = vec![row.name.clone()];
        for (wall, average) in row.walls_ms.iter().zip(&mut averages) {
            let Some(wall) = wall else {
                cells.extend(["-".to_string(), "-".to_string(), "-".to_string()]);
                continue;
            };
            let rate = bytes_per_ms(row.bytes, wall.median());
            average.push(rate);
            let megabytes = figure(megabytes_per_second(row.bytes, wall.median()));
            cells.extend([wall.to_string(), grouped(rate), megabytes]);
        }
        let ratio = row.ratios.get(1).and_then(Option::as_ref);
        cells.push(ratio.map_or("-".to_string(), Samples::to_string));
        table.row(&cells);
    }
    let average = |samples: &Samples| grouped(samples.mean());
    let (one, dual) = (&averages[0], &averages[1]);
    let ratio = figure(dual.mean() / one.mean());
    let none = String::new;
    table.row(&[
        "**average data rate**".to_string(),
        none(),
        average(one),
        figure(one.mean() / 1e3),
        none(),
        average(dual),
        figure(dual.mean() / 1e3),
        ratio,
    ]);
    table
}
