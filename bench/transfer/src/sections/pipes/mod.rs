//! Compares one pipe with two, four and eight: the kernel's splice through one pipe, and splice
//! through several pipes, each with a thread that fills and drains it.
//!
//! The first part is the paper's own comparison: ten files, splice and dual pipe, time per file and
//! average data rate. The second part has cells that show when more pipes help: where both ends
//! wait for the same lock (one destination inode), where there is nothing to share (4 KiB), and
//! where filling a pipe waits for a disk without read-ahead or for decompression. The last part is
//! the network: one connection carries bytes in order; with two, two receivers copy.

mod cells;
mod paper;

use std::path::Path;

use harness::Outcome;
use harness::plots::bars::Bars;
use harness::samples::{Samples, figure};
use harness::table::Table;
use harness::units::{MIB, megabytes_per_second};

use crate::bench::Bench;
use crate::compete::{Standings, wall_ms};
use crate::corpus::{Entry, Kind};
use crate::network::{Receiver, Sender};
use crate::subjects::Subject;

use super::sockets;

const ONE: &str = "splice";
const DUAL: &str = "dual-pipe";
const INTERLEAVED: &str = "dual-pipe-interleaved";
/// Name in tables, engine, and number of lanes if it differs from the engine's default.
const WAYS: [(&str, &str, Option<u32>); 5] = [
    ("1 pipe", ONE, None),
    ("2 pipes, halves", DUAL, None),
    ("2 pipes, interleaved", INTERLEAVED, None),
    ("4 pipes", ONE, Some(4)),
    ("8 pipes", ONE, Some(8)),
];

pub fn report(bench: &mut Bench) -> Outcome {
    let Some(program) = bench.evermap() else { return Ok(()) };
    let ways = WAYS.map(|(_, engine, lanes)| Subject::evermap(&program, Some(engine), lanes));
    paper::report(bench, &program)?;
    println!("\n### When do more pipes help?\n");
    let rows = cells::measure(bench, &ways)?;
    let names = WAYS.map(|(name, ..)| name.to_string());
    table(&names, &rows);
    let connections = connections(bench, &program)?;
    draw(bench, &names, &rows, connections)
}

/// Wall times of a cell for each way, and their ratios to the first way.
#[derive(Clone)]
struct Row {
    name: String,
    bytes: u64,
    walls_ms: Vec<Option<Samples>>,
    ratios: Vec<Option<Samples>>,
}

impl Row {
    fn of(standings: &Standings, ways: &[Subject], name: &str) -> Row {
        let wall = |way: &Subject| standings.result(&way.name).map(wall_ms);
        let first = ways.first().map_or("", |way| way.name.as_str());
        let ratio = |way: &Subject| standings.ratios(first, &way.name, |step| step.cost.wall_ms());
        Row {
            name: name.to_string(),
            bytes: standings.cell.bytes,
            walls_ms: ways.iter().map(wall).collect(),
            ratios: ways.iter().map(ratio).collect(),
        }
    }
}

/// Table of time, rate and ratio to one pipe for each way.
fn table(names: &[String], rows: &[Row]) {
    let mut head = vec!["ms; MB/s; x one pipe".to_string()];
    head.extend(names.iter().cloned());
    let mut table = Table::new(&head);
    for row in rows {
        let mut cells = vec![row.name.clone()];
        for (wall, ratio) in row.walls_ms.iter().zip(&row.ratios) {
            let (Some(wall), Some(ratio)) = (wall, ratio) else {
                cells.push("-".to_string());
                continue;
            };
            let rate = megabytes_per_second(row.bytes, wall.median());
            cells.push(format!("{wall}; {}; {} x", figure(rate), figure(ratio.median())));
        }
        table.row(&cells);
    }
    println!("{table}");
}

/// Measures one and two connections, each with its own pipe and its own copy by the receiver.
fn connections(bench: &mut Bench, program: &Path) -> Outcome<Option<(f64, f64)>> {
    println!("### One connection and two, TCP on the loopback device, into a file on tmpfs\n");
    let (Some(volume), Some(memory)) = (bench.volume("ext4"), bench.volume("tmpfs")) else {
        return Ok(None);
    };
    let entry = Entry::new(Kind::Random, 64 * MIB, bench.options.quick);
    let source = entry.make(volume.folder())?;
    let destination = memory.folder().join("received");
    let senders = [1, 2].map(|connections| Sender::Evermap {
        program: program.to_path_buf(),
        engine: Some(ONE),
        connections: Some(connections),
    });
    let receiver = Receiver::Evermap { program, raw: false, into: &destination };
    let contest = sockets::Contest {
        section: "pipes",
        cell: "connections",
        source: &source,
        bytes: entry.bytes,
        address: "127.0.0.1:0",
        senders: &senders,
        receiver: &receiver,
        into: Some(&destination),
    };
    let results = contest.hold(bench)?;
    println!("{}", sockets::table(&results));
    let walls: Vec<f64> = results.iter().map(|result| result.wall_ms().median()).collect();
    Ok(walls.first().copied().zip(walls.get(1).copied()))
}

fn draw(bench: &Bench, names: &[String], rows: &[Row], connections: Option<(f64, f64)>) -> Outcome {
    let mut groups: Vec<(String, Vec<Option<f64>>)> = rows
        .iter()
        .map(|row| {
            let ratios = row.ratios.iter().skip(1);
            (row.name.clone(), ratios.map(|ratio| Some(ratio.as_ref()?.median())).collect())
        })
        .collect();
    if let Some((one, two)) = connections.filter(|(one, two)| one.is_finite() && two.is_finite()) {
        groups.push(("2 connections / 1, TCP to tmpfs".to_string(), vec![Some(one / two)]));
    }
    let bars = Bars {
        title: "Several pipes compared with one".to_string(),
        meaning: "data rate divided by that of one pipe (medians); more is better".to_string(),
        series: names.get(1..).unwrap_or_default().to_vec(),
        groups,
        ratios: true,
    };
    bench.draw("transfer-pipes.svg", &bars.svg()?)
}
