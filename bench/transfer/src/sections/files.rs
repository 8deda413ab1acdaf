//! Ten files of different kinds and sizes, copied by everybody: on each file system and from the disk to memory, warm and
//! cold, with and without sync.
//!
//! Synced: the copy is on the disk when the time ends. `evermap copy --durability data` does that itself; the peers'
//! copies are synced by this program right after, within the time. Processor time is of the process that copies; what
//! kernel threads do for it (writing back, compressing, the threads of loop devices) is nobody's.

use std::path::PathBuf;

use common::Outcome;
use common::goals::Goal;
use common::grounds::Ground;
use common::options::Options;
use common::plots::heat::Heat;
use common::samples::{Samples, figure};
use common::table::Table;

use crate::bench::{self, Bench};
use crate::compete::{Cell, Lot, Standings, compete};
use crate::corpus::{self, Entry, Kind};
use crate::subjects::{POLICY, Subject};

use super::inside;

const GROUNDS: [&str; 4] = ["ext4", "xfs", "btrfs", "tmpfs"];
const STATES: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];
/// Not slower than the fastest peer by more than this.
pub const SLOWER_MOST: f64 = 1.05;

/// From where to where.
struct Route<'a> {
    name: String,
    from: &'a [(Entry, PathBuf)],
    to: &'a Ground,
    /// Nothing to empty a cache of.
    always_warm: bool,
}

pub fn report(bench: &mut Bench) -> Outcome {
    let entries = corpus::entries(bench.options.quick, &bench.options.sizes_bytes);
    if entries.is_empty() {
        return Err("no file has one of these sizes".into());
    }
    bench.evermap();
    let subjects = bench::everybody(bench);
    for name in GROUNDS {
        if !bench.options.wants_file_system(name) {
            continue;
        }
        let Some(ground) = bench.ground(name) else { continue };
        let sources = make(&entries, &ground)?;
        let always_warm = ground.is_memory();
        let route = Route { name: name.to_string(), from: &sources, to: &ground, always_warm };
        measure(bench, &route, &subjects)?;
        inside::report(bench, name, ground.folder(), &entries)?;
        let across = name == "ext4" && bench.options.wants_file_system("tmpfs");
        if let Some(memory) = across.then(|| bench.ground("tmpfs")).flatten() {
            let route = Route {
                name: "ext4 to tmpfs".to_string(),
                from: &sources,
                to: &memory,
                always_warm: false,
            };
            measure(bench, &route, &subjects)?;
        }
    }
    Ok(())
}

fn make(entries: &[Entry], ground: &Ground) -> Outcome<Vec<(Entry, PathBuf)>> {
    let made = entries.iter().map(|entry| Ok((entry.clone(), entry.make(ground.folder())?)));
    made.collect()
}

/// All states of one route.
fn measure(bench: &mut Bench, route: &Route<'_>, subjects: &[Subject]) -> Outcome {
    for (cold, synced) in STATES {
        let possible =
            !(cold && (route.always_warm || !bench.can_drop)) && !(synced && route.to.is_memory());
        // A quick run is cold once.
        let much = bench.options.quick && cold && route.name != GROUNDS[0];
        if !possible || much || !wants_state(&bench.options, cold, synced) {
            continue;
        }
        let state = state(cold, synced);
        println!("### {}, {state}\n", route.name);
        let mut all = Vec::new();
        for (entry, source) in route.from {
            let cell = Cell {
                section: "files",
                name: format!("{}, {state}, {}", route.name, entry.name()),
                source: source.clone(),
                destination: route.to.folder().join("copy"),
                bytes: entry.bytes,
                cold,
                synced,
                tree: false,
                counted: !cold && !synced,
            };
            all.push(compete(bench, &cell, subjects)?);
        }
        let names: Vec<String> = route.from.iter().map(|(entry, _)| entry.name()).collect();
        tables(&names, &all, !cold && !synced);
        others_than_asked(&names, &all);
        sparse(route, &all);
        judge(&names, &all);
        let drawn = format!("transfer-files-{}-{state}.svg", route.name).replace([' ', ','], "-");
        let svg = heat(&format!("{}, {state}", route.name), &names, &all).svg()?;
        bench.draw(&drawn.replace("--", "-"), &svg)?;
        println!();
        bench.own.standings.extend(all);
    }
    Ok(())
}

/// Is a file copied like this? A quick run that names no state takes the least and the most.
fn wants_state(options: &Options, cold: bool, synced: bool) -> bool {
    if options.quick && !options.names_states() {
        return cold == synced;
    }
    let wants = |is_one: bool, one: &str, other: &str| match is_one {
        true => options.wants_of_pair(one, other),
        false => options.wants_of_pair(other, one),
    };
    wants(cold, "cold", "warm") && wants(synced, "synced", "unsynced")
}

fn state(cold: bool, synced: bool) -> String {
    format!(
        "{}, {}",
        if cold { "cold" } else { "warm" },
        if synced { "synced" } else { "unsynced" }
    )
}

/// Wall time and processor time of everybody, and what the kernel counted.
fn tables(names: &[String], all: &[Standings], counted: bool) {
    println!("{}", by_subject("wall, ms", names, all, |lot| lot.wall_ms().to_string()));
    println!("{}", by_subject("CPU, ms", names, all, |lot| lot.cpu_ms().to_string()));
    if counted {
        println!("System calls / voluntary switches / involuntary switches / page faults:\n");
        println!("{}", by_subject("", names, all, counts));
    }
    let failures = all.first().into_iter().flat_map(|standings| &standings.lots);
    for lot in failures {
        if let Err(failure) = &lot.steps {
            println!("- `{}`: {}", lot.name, failure.lines().next().unwrap_or_default());
        }
    }
}

/// Engines that were asked for and left (some of) it to others.
fn others_than_asked(names: &[String], all: &[Standings]) {
    for (name, standings) in names.iter().zip(all) {
        let asked = standings.lots.iter().filter(|lot| !lot.is_peer && lot.name != POLICY);
        for lot in asked {
            if let Some(used) = lot.engines.as_ref().filter(|used| **used != lot.name) {
                println!("- `{}`, {name}: in fact by {used}", lot.name);
            }
        }
    }
}

fn counts(lot: &Lot) -> String {
    let median = |samples: Samples| format!("{:.0}", samples.median());
    let calls = lot.system_calls.map_or("?".to_string(), |calls| calls.to_string());
    let voluntary = median(lot.samples(|step| step.cost.voluntary_switches as f64));
    let involuntary = median(lot.samples(|step| step.cost.involuntary_switches as f64));
    let faults =
        median(lot.samples(|step| (step.cost.minor_faults + step.cost.major_faults) as f64));
    format!("{calls} / {voluntary} / {involuntary} / {faults}")
}

/// A row for each subject, a column for each file.
fn by_subject(
    corner: &str,
    names: &[String],
    all: &[Standings],
    cell: impl Fn(&Lot) -> String,
) -> Table {
    let mut head = vec![corner.to_string()];
    head.extend(names.iter().cloned());
    let mut table = Table::new(&head);
    for subject in subject_names(all) {
        let mut row = vec![subject.to_string()];
        let cells = all.iter().map(|standings| standings.lot(subject));
        row.extend(cells.map(|lot| lot.map_or("-".to_string(), &cell)));
        table.row(&row);
    }
    table
}

fn subject_names(all: &[Standings]) -> Vec<&str> {
    let first = all.first().into_iter().flat_map(|standings| &standings.lots);
    first.map(|lot| lot.name.as_str()).collect()
}

/// What became of the hole.
fn sparse(route: &Route<'_>, all: &[Standings]) {
    for ((entry, _), standings) in route.from.iter().zip(all) {
        if entry.kind != Kind::Sparse {
            continue;
        }
        let kib = |lot: &Lot| {
            let bytes = lot.samples(|step| step.allocated_bytes as f64).median();
            format!("{} {} KiB", lot.name, figure(bytes / 1024.0))
        };
        let measured = standings.lots.iter().filter(|lot| lot.steps.is_ok());
        let each: Vec<String> = measured.map(kib).collect();
        println!(
            "- allocated for the copy of {} (4 KiB of data): {}",
            entry.name(),
            each.join("; ")
        );
    }
}

/// Evermap beside the fastest peer, file by file.
fn judge(names: &[String], all: &[Standings]) {
    let mut table = Table::new(&[
        "",
        "fastest peer",
        "ms",
        "`evermap copy`, ms",
        "evermap / peer",
        "within 5 %",
        "by",
    ]);
    for (name, standings) in names.iter().zip(all) {
        let Some(peer) = standings.fastest_peer() else { continue };
        let (Some(own), Some(ratios)) = (standings.lot(POLICY), against_fastest(standings)) else {
            continue;
        };
        let by = own.engines.as_deref().unwrap_or("?");
        let met = if ratios.median() <= SLOWER_MOST { "yes" } else { "**no**" };
        let (peer_ms, own_ms) = (peer.wall_ms().to_string(), own.wall_ms().to_string());
        table.row(&[name, &peer.name, &peer_ms, &own_ms, &ratios.to_string(), met, by]);
    }
    if all.iter().any(|standings| standings.lot(POLICY).is_some()) {
        println!("\n{table}");
    }
}

/// The time of `evermap copy` in parts of that of the fastest peer.
pub fn against_fastest(standings: &Standings) -> Option<Samples> {
    let peer = standings.fastest_peer()?.name.clone();
    standings.ratios(POLICY, &peer, |step| step.cost.wall_ms())
}

/// The goals of each cell that was measured.
pub fn goals(bench: &mut Bench) {
    let limit = Goal::AtMost(SLOWER_MOST);
    for standings in &bench.own.standings {
        let Some(ratios) = against_fastest(standings) else { continue };
        let peer = standings.fastest_peer().map_or("", |lot| lot.name.as_str());
        let what = format!("{}: evermap / fastest peer", standings.cell.name);
        bench.goals.judge(&what, peer, &ratios, limit);
    }
    if bench.own.standings.is_empty() {
        let what = "every cell of `files`: evermap / fastest peer";
        bench.goals.unmeasured(what, limit, "`files` has to run in the same run");
    }
}

/// Everybody's time in parts of cp's.
fn heat(title: &str, names: &[String], all: &[Standings]) -> Heat {
    const TO: &str = "cp";
    let rows = subject_names(all).into_iter().map(|subject| {
        let ratio = |standings: &Standings| {
            let ratios = standings.ratios(subject, TO, |step| step.cost.wall_ms())?;
            Some(ratios.median())
        };
        (subject.to_string(), all.iter().map(ratio).collect())
    });
    Heat {
        title: format!("Copying a file: {title}"),
        meaning: format!(
            "wall time in parts of that of `{TO}` (median of the rounds' ratios); less is better"
        ),
        columns: names.to_vec(),
        rows: rows.collect(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::sections::choices;

    fn wanted(arguments: &[&str]) -> Vec<(bool, bool)> {
        let options = Options::parse(arguments, &choices(), &|_| None).unwrap().unwrap();
        STATES.into_iter().filter(|(cold, synced)| wants_state(&options, *cold, *synced)).collect()
    }

    #[test]
    fn one_state_of_each_pair_or_both_are_taken() {
        assert_eq!(wanted(&[]), STATES);
        assert_eq!(wanted(&["--states", "cold,synced"]), [(true, true)]);
        assert_eq!(wanted(&["--states", "cold"]), [(true, false), (true, true)]);
        assert_eq!(wanted(&["--quick"]), [(false, false), (true, true)]);
        assert_eq!(wanted(&["--quick", "--states", "cold,synced"]), [(true, true)]);
    }
}
