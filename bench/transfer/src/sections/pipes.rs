//! One pipe against two, four and eight: splice as the kernel has it, and splice through pipes side by side, each with a
//! thread that fills and drains it.
//!
//! First the paper's own comparison: ten files, splice and dual pipe, time per file and average data rate. Then cells
//! that say when more pipes help: where both ends wait for the same lock (one destination inode), where there is
//! nothing to share (4 KiB), and where filling a pipe waits, for a disk without read-ahead or for one that unpacks.
//! At last the network: one connection carries bytes in order, two let two receivers copy.

use std::path::{Path, PathBuf};

use crate::Outcome;
use crate::bench::{Bench, said};
use crate::compete::{Cell, Standings, compete};
use crate::corpus::{self, Entry, Kind};
use crate::grounds::Ground;
use crate::in_process::{self, InProcess, Request};
use crate::network::{Receiver, Sender};
use crate::plots::bars::Bars;
use crate::plots::lines::Lines;
use crate::samples::{Samples, figure};
use crate::subjects::Subject;
use crate::table::Table;
use crate::units::{KIB, MIB, bytes_per_ms, grouped, megabytes_per_second};

use super::sockets;

const ONE: &str = "splice";
const DUAL: &str = "dual-pipe";
const INTERLEAVED: &str = "dual-pipe-interleaved";
/// What tables call them, the engine, its lanes where they are not its own.
const WAYS: [(&str, &str, Option<u32>); 5] = [
    ("1 pipe", ONE, None),
    ("2 pipes, halves", DUAL, None),
    ("2 pipes, interleaved", INTERLEAVED, None),
    ("4 pipes", ONE, Some(4)),
    ("8 pipes", ONE, Some(8)),
];
const READ_AHEAD: &str = "queue/read_ahead_kb";

pub fn report(bench: &mut Bench) -> Outcome {
    let Some(program) = bench.evermap() else { return Ok(()) };
    let ways = WAYS.map(|(_, engine, lanes)| Subject::evermap(&program, Some(engine), lanes));
    papers_table(bench, &program)?;
    println!("\n### When do more pipes help?\n");
    let mut rows = Vec::new();
    warm_cells(bench, &ways, &mut rows)?;
    waiting_cells(bench, &ways, &mut rows)?;
    packed_cells(bench, &ways, &mut rows)?;
    let names = WAYS.map(|(name, ..)| name.to_string());
    table(&names, &rows);
    let connections = connections(bench, &program)?;
    draw(bench, &names, &rows, connections)
}

/// A cell's samples of wall time, way by way, and the ratio of each to the first.
struct Row {
    name: String,
    bytes: u64,
    walls_ms: Vec<Option<Samples>>,
    ratios: Vec<Option<Samples>>,
}

impl Row {
    fn of(standings: &Standings, ways: &[Subject], name: &str) -> Row {
        let wall = |way: &Subject| standings.lot(&way.name).map(|lot| lot.wall_ms());
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

fn cell(name: &str, source: PathBuf, to: &Ground, bytes: u64, cold: bool) -> Cell {
    Cell {
        section: "pipes",
        name: name.to_string(),
        source,
        destination: to.folder().join("copy"),
        bytes,
        cold,
        synced: false,
        tree: false,
        counted: false,
    }
}

/// As the paper has it: each file by splice and by dual pipe, and the averages of the data rates.
fn papers_table(bench: &mut Bench, program: &Path) -> Outcome {
    let Some(ground) = bench.ground("ext4") else { return Ok(()) };
    let pair = [ONE, DUAL].map(|engine| Subject::evermap(program, Some(engine), None));
    let inside = InProcess::find(program);
    println!("### The paper's comparison: ten files, warm, same file system\n");
    if inside.is_none() {
        println!(
            "`evermap bench transfer` is not there: times are of whole processes, whose start is most of what a small \
             file takes.\n"
        );
    }
    let (mut outside_rows, mut inside_rows) = (Vec::new(), Vec::new());
    for entry in corpus::entries(bench.options.quick, &bench.options.sizes_bytes) {
        let source = entry.make(ground.folder())?;
        let name = format!("paper, {}", entry.name());
        let cell = cell(&name, source, &ground, entry.bytes, false);
        let standings = compete(bench, &cell, &pair)?;
        outside_rows.push(Row::of(&standings, &pair, &entry.name()));
        if let Some(inside) = &inside {
            inside_rows.push(in_process_row(bench, inside, &cell, &entry)?);
        }
    }
    let names = [ONE.to_string(), DUAL.to_string()];
    println!("Whole processes:\n\n{}", rates(&names, &outside_rows));
    let mut plotted = &outside_rows;
    if inside.is_some() {
        println!("Inside a process that runs:\n\n{}", rates(&names, &inside_rows));
        plotted = &inside_rows;
    }
    let series = names.iter().enumerate().map(|(index, name)| {
        let point = |row: &Row| {
            Some((row.bytes, bytes_per_ms(row.bytes, row.walls_ms[index].as_ref()?.median())))
        };
        (name.clone(), plotted.iter().filter_map(point).collect())
    });
    let lines = Lines {
        title: "Splice and dual pipe: data rate by size of file".to_string(),
        meaning: "bytes a millisecond, warm, same file system (medians); more is better"
            .to_string(),
        series: series.collect(),
    };
    bench.draw("transfer-pipes-rate.svg", &lines.svg()?)
}

fn in_process_row(
    bench: &mut Bench,
    inside: &InProcess,
    cell: &Cell,
    entry: &Entry,
) -> Outcome<Row> {
    let measure = |engine, lanes| {
        crate::compete::remove(&cell.destination)?;
        let (source, destination) = (&cell.source, &cell.destination);
        inside.measure(Request { engine, lanes, rounds: bench.options.rounds, source, destination })
    };
    let one = in_process::wall_ms(&measure(ONE, 1)?);
    let dual = in_process::wall_ms(&measure(DUAL, 2)?);
    let mut ratio = Samples::new();
    // Rounds of one process each: of two processes, only the medians can be compared.
    ratio.push(one.median() / dual.median());
    let mut same = Samples::new();
    same.push(1.0);
    Ok(Row {
        name: entry.name(),
        bytes: entry.bytes,
        walls_ms: vec![Some(one), Some(dual)],
        ratios: vec![Some(same), Some(ratio)],
    })
}

/// Time per file and data rate, and at the end the average of the rates.
fn rates(names: &[String; 2], rows: &[Row]) -> Table {
    let mut head = vec!["".to_string()];
    for name in names {
        head.extend([format!("{name}, ms"), format!("{name}, bytes/ms"), format!("{name}, MB/s")]);
    }
    head.push(format!("{} / {}", names[1], names[0]));
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

/// Warm: nothing waits but for the destination.
fn warm_cells(bench: &mut Bench, ways: &[Subject], rows: &mut Vec<Row>) -> Outcome {
    let (Some(ground), memory) = (bench.ground("ext4"), bench.ground("tmpfs")) else {
        return Ok(());
    };
    let quick = bench.options.quick;
    for (name, bytes) in
        [("4 KiB, same file system", 4 * KIB), ("64 MiB, same file system", 64 * MIB)]
    {
        let entry = Entry::new(Kind::Random, bytes, quick);
        let source = entry.make(ground.folder())?;
        let cell = cell(&format!("{name}, warm"), source, &ground, entry.bytes, false);
        let standings = compete(bench, &cell, ways)?;
        rows.push(Row::of(&standings, ways, &cell.name));
    }
    if let Some(memory) = memory {
        let entry = Entry::new(Kind::Random, 64 * MIB, quick);
        let source = entry.make(ground.folder())?;
        let cell = cell("64 MiB, to tmpfs, warm", source, &memory, entry.bytes, false);
        let standings = compete(bench, &cell, ways)?;
        rows.push(Row::of(&standings, ways, &cell.name));
    }
    Ok(())
}

/// Cold, from a disk that reads ahead by as much as usual, or less, or not at all.
fn waiting_cells(bench: &mut Bench, ways: &[Subject], rows: &mut Vec<Row>) -> Outcome {
    if !bench.can_drop {
        println!("**Skipped: cold cells**: emptying the page cache takes root\n");
        return Ok(());
    }
    let Some(source_ground) = said("xfs", bench.grounds.on_loop("xfs-source", "xfs")) else {
        return Ok(());
    };
    let Some(memory) = bench.ground("tmpfs") else { return Ok(()) };
    let entry = Entry::new(Kind::Random, 64 * MIB, bench.options.quick);
    let source = entry.make(source_ground.folder())?;
    for kib in [None, Some(128), Some(0)] {
        let set = ReadAhead::set(bench, &source_ground, kib)?;
        let name = match kib {
            None => format!("xfs to tmpfs, cold, read-ahead {} KiB, as it was", set.before),
            Some(kib) => format!("xfs to tmpfs, cold, read-ahead {kib} KiB"),
        };
        let cell = cell(&name, source.clone(), &memory, entry.bytes, true);
        let standings = compete(bench, &cell, ways)?;
        rows.push(Row::of(&standings, ways, &name));
    }
    Ok(())
}

/// Cold, from file systems that unpack what they read.
fn packed_cells(bench: &mut Bench, ways: &[Subject], rows: &mut Vec<Row>) -> Outcome {
    if !bench.can_drop {
        return Ok(());
    }
    let Some(memory) = bench.ground("tmpfs") else { return Ok(()) };
    let entry = Entry::new(Kind::Text, 64 * MIB, bench.options.quick);
    let content = bench.folder("content")?;
    entry.make(&content)?;
    for (name, kind) in
        [("squashfs zstd", "squashfs"), ("erofs lz4hc", "erofs"), ("btrfs zstd", "btrfs")]
    {
        let ground = match kind {
            "btrfs" => bench.grounds.compressing(),
            _ => bench.grounds.packed(kind, &content),
        };
        let Some(ground) = said(name, ground) else { continue };
        if kind == "btrfs" {
            entry.make(ground.folder())?;
        }
        let source = ground.folder().join(entry.file_name());
        let name = format!("{name} to tmpfs, cold");
        let cell = cell(&name, source, &memory, entry.bytes, true);
        let standings = compete(bench, &cell, ways)?;
        rows.push(Row::of(&standings, ways, &name));
    }
    std::fs::remove_dir_all(content)?;
    Ok(())
}

/// A setting of a block device that is as before once this goes away.
struct ReadAhead {
    file: PathBuf,
    before: String,
}

impl ReadAhead {
    fn set(bench: &mut Bench, ground: &Ground, kib: Option<u32>) -> Outcome<ReadAhead> {
        let device = ground.device().ok_or("a file system on a loop device is needed")?;
        let file = device.setting(READ_AHEAD)?;
        let before = std::fs::read_to_string(&file)?.trim().to_string();
        bench.guard.write(&before, &file)?;
        let set = ReadAhead { file, before };
        if let Some(kib) = kib {
            std::fs::write(&set.file, kib.to_string())?;
        }
        Ok(set)
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        if let Err(error) = std::fs::write(&self.file, &self.before) {
            eprintln!("{} is not {} again: {error}", self.file.display(), self.before);
        }
    }
}

/// Time, rate and ratio to one pipe, way by way.
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

/// Two connections, each with a pipe and a receiver's copy of its own.
fn connections(bench: &mut Bench, program: &Path) -> Outcome<Option<(f64, f64)>> {
    println!("### One connection and two, TCP on the loopback device, into a file on tmpfs\n");
    let (Some(ground), Some(memory)) = (bench.ground("ext4"), bench.ground("tmpfs")) else {
        return Ok(None);
    };
    let entry = Entry::new(Kind::Random, 64 * MIB, bench.options.quick);
    let source = entry.make(ground.folder())?;
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
        title: "More pipes against one".to_string(),
        meaning: "data rate in parts of that through one pipe (medians); more is better"
            .to_string(),
        series: names.get(1..).unwrap_or_default().to_vec(),
        groups,
        ratios: true,
    };
    bench.draw("transfer-pipes.svg", &bars.svg()?)
}
