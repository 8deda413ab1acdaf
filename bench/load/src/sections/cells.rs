//! Measures every subject in every state: 64 MiB and 1 GiB, cold and warm, a share of the pages
//! read or written, in order and at random, on the folder's own file system.
//!
//! The best subject has the least median time, without evermap's own policies. A policy may be up
//! to 10 % slower. The least of up to 21 medians is below the usual time of any of them, so on a
//! noisy machine `within 10 %` is hard to reach.

use harness::Outcome;
use harness::plots::heat::Heat;
use harness::units::{GIB, MIB, size};

use super::{SHARES_PERCENT, tables};
use crate::bench::Bench;
use crate::compete::{Cell, Measured, Standings, compete};
use crate::corpus::{self, Content};
use crate::subjects::READ;
use crate::work::{Order, Work};

const SIZES_BYTES: [u64; 2] = [64 * MIB, GIB];
const GROUPS: [(bool, Order); 4] = [
    (false, Order::Sequential),
    (false, Order::Random),
    (true, Order::Sequential),
    (true, Order::Random),
];

pub fn report(bench: &mut Bench) -> Outcome {
    let sizes_bytes = match bench.options.sizes_bytes.is_empty() {
        true => SIZES_BYTES.to_vec(),
        false => bench.options.sizes_bytes.clone(),
    };
    let mut all = Vec::new();
    for bytes in sizes_bytes {
        let folder = bench.folder("cells")?;
        let file = corpus::make(&folder, "file", bytes, Content::Random)?;
        for is_cold in [true, false] {
            let is_possible = !is_cold || harness::volumes::kind(&folder) != Some("tmpfs");
            if is_possible && wants(bench, is_cold, "cold", "warm") {
                all.extend(state(bench, &file, bytes, is_cold)?);
            }
        }
        std::fs::remove_file(file)?;
    }
    if all.is_empty() {
        return Err("no cell has these states and shares".into());
    }
    println!("### Automatic compared with the best\n\n{}", tables::verdicts(&all));
    tables::say_within(&all);
    bench.own.standings.extend(all);
    Ok(())
}

fn wants(bench: &Bench, is_one: bool, one: &str, other: &str) -> bool {
    match is_one {
        true => bench.options.wants_of_pair(one, other),
        false => bench.options.wants_of_pair(other, one),
    }
}

/// Returns the shares to measure. A quick run that names none uses the smallest and the largest.
fn shares(bench: &Bench) -> Vec<u8> {
    let options = &bench.options;
    let few = options.quick && !options.has("shares");
    let wanted =
        SHARES_PERCENT.into_iter().filter(|share| options.selects("shares", &share.to_string()));
    wanted.filter(|share| !few || matches!(share, 10 | 100)).collect()
}

/// Measures one size, cold or warm: read and written, in order and at random.
fn state(
    bench: &mut Bench,
    file: &std::path::Path,
    bytes: u64,
    is_cold: bool,
) -> Outcome<Vec<Standings>> {
    let subjects = bench.own.subjects.clone();
    let mut all = Vec::new();
    for (is_written, order) in GROUPS {
        let is_wanted = wants(bench, is_written, "written", "read")
            && wants(bench, order == Order::Random, "random", "sequential");
        if !is_wanted {
            continue;
        }
        let mut group = Vec::new();
        for touched_percent in shares(bench) {
            let work = Work { touched_percent, is_written, order };
            let name = format!("{}, {}, {}", size(bytes), tables::state(is_cold), work.name());
            let cell = Cell {
                section: "cells",
                name,
                file: file.to_path_buf(),
                bytes,
                is_cold,
                work,
                is_packed: false,
            };
            group.push(compete(bench, &cell, &subjects)?);
        }
        print(&group);
        all.extend(group);
    }
    if !all.is_empty() {
        draw(bench, bytes, is_cold, &all)?;
    }
    Ok(all)
}

/// Prints one group, with a column for each share.
fn print(group: &[Standings]) {
    let Some(most) = group.last() else { return };
    let columns: Vec<String> = group
        .iter()
        .map(|standings| format!("{} %", standings.cell.work.touched_percent))
        .collect();
    let name = most.cell.name.replacen(&format!("{} % ", most.cell.work.touched_percent), "", 1);
    println!("### {name}\n");
    println!("{}", tables::by_subject("finished, ms", &columns, group, tables::finished));
    println!("{}", tables::by_subject("first page, ms", &columns, group, tables::first_page));
    println!("{}:\n\n{}", most.cell.name, tables::costs(most));
    tables::failures(group);
}

/// Draws the time of each subject divided by the time of `malloc+read`.
fn draw(bench: &Bench, bytes: u64, is_cold: bool, all: &[Standings]) -> Outcome {
    let rows = tables::subjects(all).into_iter().map(|subject| {
        let ratio = |standings: &Standings| {
            Some(standings.ratios(subject, READ, Measured::finished_ms)?.median())
        };
        (subject.to_string(), all.iter().map(ratio).collect())
    });
    let column = |standings: &Standings| {
        let Work { touched_percent, is_written, order } = standings.cell.work;
        let what = if is_written { "w" } else { "r" };
        let order = if order == Order::Random { "random" } else { "in-order" };
        format!("{order} {what} {touched_percent} %")
    };
    let heat = Heat {
        title: format!("Loading {}, {}", size(bytes), tables::state(is_cold)),
        meaning: format!(
            "time to finish divided by that of `{READ}`; r read, w written; less is better"
        ),
        columns: all.iter().map(column).collect(),
        rows: rows.collect(),
    };
    let name = format!("load-{}-{}.svg", size(bytes).replace(' ', ""), tables::state(is_cold));
    bench.draw(&name, &heat.svg()?)
}
