//! Measures the cost of ten objects for a starting instance, from its start to the first word of
//! each. The comparison is an instance without objects, which loads a word of its own memory.
//!
//! The first part measures whole processes, from before exec until the words are loaded: an engine
//! is created, a small compiled module is taken from wasmtime's cache, the store is opened, an
//! instance is created. The second part runs in a process where all of that is ready, so that only
//! the instance remains. Objects have a megabyte each and are in the page cache; they are mapped as
//! snapshots.

use std::collections::BTreeMap;
use std::process::Command;

use crate::bench::{self, Bench, Measured, Shelf};
use crate::objects::{OBJECT_BYTES, OBJECTS};
use harness::Outcome;
use harness::goals::Goal;
use harness::raw::Origin;
use harness::running::Running;
use harness::samples::{Samples, figure};
use harness::table::Table;
use serde_json::json;

const COUNTS: [usize; 2] = [0, OBJECTS];
/// Instances for each round of one process, because each is fast.
const REPEATS: usize = 20;

/// Measurements of instances with a fixed number of objects.
#[derive(Debug, Default)]
struct Taken {
    loaded_us: Vec<f64>,
    ended_us: Vec<f64>,
    faults: Vec<f64>,
}

pub fn report(bench: &mut Bench) -> Outcome {
    let shelf = bench.own.shelf()?;
    let mut command = bench.own.child(&shelf);
    command.arg("make").arg(shelf.store());
    Running::start(command)?.finish()?;
    println!(
        "{OBJECTS} objects of {} KiB. Compiled code comes from wasmtime's cache, in a folder of the benchmark.\n",
        OBJECT_BYTES >> 10
    );
    let whole = whole_processes(bench, &shelf)?;
    let inside = inside_one_process(bench, &shelf)?;

    let mut table = Table::new(&["µs", "without objects", "with ten", "more", "with / without"]);
    let mut add = |what: &str, (none, ten): (&[f64], &[f64]), goal: Option<Goal>| {
        let ratios: Samples = ten.iter().zip(none).map(|(ten, none)| ten / none).collect();
        let more: Samples = ten.iter().zip(none).map(|(ten, none)| ten - none).collect();
        let ratio = match goal {
            Some(goal) => bench.goals.judge_in_cell(&format!("ten objects, {what}"), &ratios, goal),
            None => figure(ratios.median()),
        };
        let [none, ten] =
            [none, ten].map(|values| values.iter().copied().collect::<Samples>().to_string());
        table.row(&[what, &none, &ten, &figure(more.median()), &ratio]);
    };
    let goal = Some(Goal::AtMost(1.5));
    let [none, ten] = &whole;
    add("whole process, exec to first loads", (&none.loaded_us, &ten.loaded_us), goal);
    add("whole process, exec to exit", (&none.ended_us, &ten.ended_us), None);
    add("whole process: minor faults", (&none.faults, &ten.faults), None);
    let [none, ten] = &inside;
    add("inside a process, start to first loads", (&none.loaded_us, &ten.loaded_us), goal);
    add("inside a process, end of the instance", (&none.ended_us, &ten.ended_us), None);
    add("inside a process: minor faults", (&none.faults, &ten.faults), None);
    print!("{table}");
    system_calls(bench, &shelf)
}

fn start(bench: &Bench, shelf: &Shelf, objects: usize) -> Command {
    let mut command = bench.own.child(shelf);
    command.arg("start").arg(objects.to_string()).arg(shelf.store());
    command
}

fn whole_processes(bench: &mut Bench, shelf: &Shelf) -> Outcome<[Taken; 2]> {
    let mut taken = [Taken::default(), Taken::default()];
    for round in 0..=bench.options.rounds {
        for (objects, taken) in COUNTS.into_iter().zip(&mut taken) {
            let Measured { ended, cost } = bench::run(start(bench, shelf, objects))?;
            let loaded_ns: u64 = ended.output.trim().parse()?;
            let loaded_ns = loaded_ns.checked_sub(ended.started_ns);
            let loaded_ns =
                loaded_ns.ok_or("the reported time is before the start of the process")?;
            let (whole_ns, minor_faults) = (ended.cost.wall_ns, cost.minor_faults);
            let figures = json!({ "loaded_ns": loaded_ns, "whole_ns": whole_ns, "minor_faults": minor_faults });
            add(bench, "process", objects, round, figures)?;
            if round > 0 {
                taken.loaded_us.push(loaded_ns as f64 / 1e3);
                taken.ended_us.push(ended.whole.as_secs_f64() * 1e6);
                taken.faults.push(minor_faults as f64);
            }
        }
    }
    Ok(taken)
}

fn inside_one_process(bench: &mut Bench, shelf: &Shelf) -> Outcome<[Taken; 2]> {
    let repeats = bench.options.rounds * REPEATS;
    let mut command = bench.own.child(shelf);
    command.arg("instances").arg(OBJECTS.to_string()).arg(repeats.to_string()).arg(shelf.store());
    let mut taken = [Taken::default(), Taken::default()];
    for (line, text) in Running::start(command)?.finish()?.output.lines().enumerate() {
        let (objects, [loaded_ns, ended_ns, faults]) = instance(text)?;
        let round = line / COUNTS.len() + 1;
        let figures =
            json!({ "loaded_ns": loaded_ns, "ended_ns": ended_ns, "minor_faults": faults });
        add(bench, "inside", objects, round, figures)?;
        let taken = &mut taken[usize::from(objects > 0)];
        taken.loaded_us.push(loaded_ns as f64 / 1e3);
        taken.ended_us.push(ended_ns as f64 / 1e3);
        taken.faults.push(faults as f64);
    }
    Ok(taken)
}

/// Writes the figures of an instance into the raw figures.
fn add(
    bench: &mut Bench,
    cell: &str,
    objects: usize,
    round: usize,
    figures: serde_json::Value,
) -> Outcome {
    let origin = Origin { section: "instances", cell, subject: name(objects), round };
    bench.raw.add(origin, figures)
}

/// Parses a line of `bench-sandbox child instances`: objects, and three numbers.
fn instance(line: &str) -> Outcome<(usize, [u64; 3])> {
    let numbers: Vec<u64> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
    let [objects, loaded_ns, ended_ns, faults] = numbers[..] else {
        return Err(format!("expected four numbers: `{line}`").into());
    };
    Ok((objects as usize, [loaded_ns, ended_ns, faults]))
}

fn name(objects: usize) -> &'static str {
    if objects == 0 { "without objects" } else { "with ten" }
}

/// Prints the system calls of a whole process, counted by `strace` in separate runs, because it
/// slows them down.
fn system_calls(bench: &Bench, shelf: &Shelf) -> Outcome {
    let mut counts = Vec::new();
    for objects in COUNTS {
        let start = start(bench, shelf, objects);
        let summary = shelf.state().join("strace");
        let mut command = Command::new("strace");
        command
            .args(["-c", "-f", "-o"])
            .arg(&summary)
            .arg(start.get_program())
            .args(start.get_args());
        command.envs(start.get_envs().filter_map(|(name, value)| Some((name, value?))));
        if let Err(error) = Running::start(command).and_then(Running::finish) {
            eprintln!("system calls are not counted: {error}");
            println!("\n- system calls are not counted: `strace` is missing or may not trace");
            return Ok(());
        }
        counts.push(calls(&std::fs::read_to_string(&summary)?));
    }
    let [none, ten] = &counts[..] else { return Ok(()) };
    let mut table =
        Table::new(&["system calls of the whole process", "without objects", "with ten", "more"]);
    let mut names: Vec<&String> = none.keys().chain(ten.keys()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let of = |counts: &BTreeMap<String, u64>| counts.get(name).copied().unwrap_or(0);
        if of(none) != of(ten) {
            let more = of(ten) as i64 - of(none) as i64;
            table.row(&[name, &of(none).to_string(), &of(ten).to_string(), &more.to_string()]);
        }
    }
    println!("\n{table}");
    Ok(())
}

/// Parses the summary of `strace -c` into calls by name. The columns are share, seconds, time per
/// call, calls, errors if there are any, and name.
fn calls(summary: &str) -> BTreeMap<String, u64> {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        Some((fields.last()?.to_string(), fields.get(3)?.parse().ok()?))
    };
    summary.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const SUMMARY: &str = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.00    0.000300          10        30           mmap
 40.00    0.000200          20        10         3 openat
------ ----------- ----------- --------- --------- ----------------
100.00    0.000500          12        40         3 total
";

    #[test]
    fn calls_are_counted_with_and_without_errors() {
        let counts = calls(SUMMARY);
        let expected = [("mmap", 30), ("openat", 10), ("total", 40)];
        assert_eq!(counts, expected.map(|(name, count)| (name.to_string(), count)).into());
    }

    #[test]
    fn an_instances_line_has_four_numbers() {
        assert_eq!(instance("10 2000 30 4").unwrap(), (10, [2000, 30, 4]));
        assert!(instance("10 2000").is_err() && instance("ten 1 2 3").is_err());
    }
}
