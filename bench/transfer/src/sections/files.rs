//! Copies ten files of different kinds and sizes by all subjects: on each file system and from the
//! disk to memory, warm and cold, synced and not.
//!
//! Synced means that the copy is on the disk when the time ends. `evermap copy --durability data`
//! does that itself; this program syncs the peers' copies right after, within the time. Processor
//! time covers the copying process. Work of kernel threads (write-back, compression, loop
//! devices) is not charged to any subject.

use std::path::PathBuf;

use harness::Outcome;
use harness::goals::Goal;
use harness::options::Options;
use harness::plots::heat::Heat;
use harness::samples::{Samples, figure};
use harness::table::Table;
use harness::volumes::Volume;

use crate::bench::{self, Bench};
use crate::compete::{Cell, Standings, SubjectResult, compete, cpu_ms, fastest_peer, wall_ms};
use crate::corpus::{self, Entry, Kind};
use crate::subjects::{POLICY, Subject};

use super::inside;

const FILE_SYSTEMS: [&str; 4] = ["ext4", "xfs", "btrfs", "tmpfs"];
const STATES: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];
/// Highest accepted ratio to the fastest peer.
pub const SLOWER_MOST: f64 = 1.05;

/// Source and destination of the copies.
struct Route<'a> {
    name: String,
    from: &'a [(Entry, PathBuf)],
    to: &'a Volume,
    /// True if no cache can be emptied.
    always_warm: bool,
}

pub fn report(bench: &mut Bench) -> Outcome {
    let entries = corpus::entries(bench.options.quick, &bench.options.sizes_bytes);
    if entries.is_empty() {
        return Err("no file has one of these sizes".into());
    }
    bench.evermap();
    let subjects = bench::all_subjects(bench);
    for name in FILE_SYSTEMS {
        if !bench.options.selects("file-systems", name) {
            continue;
        }
        let Some(volume) = bench.volume(name) else { continue };
        let sources = make(&entries, &volume)?;
        let always_warm = volume.is_memory();
        let route = Route { name: name.to_string(), from: &sources, to: &volume, always_warm };
        measure(bench, &route, &subjects)?;
        inside::report(bench, name, volume.folder(), &entries)?;
        let across = name == "ext4" && bench.options.selects("file-systems", "tmpfs");
        if let Some(memory) = across.then(|| bench.volume("tmpfs")).flatten() {
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

fn make(entries: &[Entry], volume: &Volume) -> Outcome<Vec<(Entry, PathBuf)>> {
    let made = entries.iter().map(|entry| Ok((entry.clone(), entry.make(volume.folder())?)));
    made.collect()
}

/// Measures all states of one route.
fn measure(bench: &mut Bench, route: &Route<'_>, subjects: &[Subject]) -> Outcome {
    for (cold, synced) in STATES {
        let possible =
            !(cold && (route.always_warm || !bench.can_drop)) && !(synced && route.to.is_memory());
        // A quick run is cold on one file system only.
        let much = bench.options.quick && cold && route.name != FILE_SYSTEMS[0];
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

/// Returns true if this state is wanted. A quick run that names no state uses the first and the
/// last.
fn wants_state(options: &Options, cold: bool, synced: bool) -> bool {
    if options.quick && !options.has("states") {
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

/// Prints wall time, processor time and, if counted, the kernel's counts of all subjects.
fn tables(names: &[String], all: &[Standings], counted: bool) {
    println!("{}", by_subject("wall, ms", names, all, |result| wall_ms(result).to_string()));
    println!("{}", by_subject("CPU, ms", names, all, |result| cpu_ms(result).to_string()));
    if counted {
        println!("System calls / voluntary switches / involuntary switches / page faults:\n");
        println!("{}", by_subject("", names, all, counts));
    }
    let failures = all.first().into_iter().flat_map(|standings| &standings.results);
    for result in failures {
        if let Err(failure) = &result.steps {
            println!("- `{}`: {}", result.name, failure.lines().next().unwrap_or_default());
        }
    }
}

/// Lists the cases in which other engines than the requested one moved bytes.
fn others_than_asked(names: &[String], all: &[Standings]) {
    for (name, standings) in names.iter().zip(all) {
        let asked = standings
            .results
            .iter()
            .filter(|result| !result.about.is_peer && result.name != POLICY);
        for result in asked {
            if let Some(used) = result.about.engines.as_ref().filter(|used| **used != result.name) {
                println!("- `{}`, {name}: in fact by {used}", result.name);
            }
        }
    }
}

fn counts(result: &SubjectResult) -> String {
    let median = |samples: Samples| format!("{:.0}", samples.median());
    let calls = result.about.system_calls.map_or("?".to_string(), |calls| calls.to_string());
    let voluntary = median(result.samples(|step| step.cost.voluntary_switches as f64));
    let involuntary = median(result.samples(|step| step.cost.involuntary_switches as f64));
    let faults =
        median(result.samples(|step| (step.cost.minor_faults + step.cost.major_faults) as f64));
    format!("{calls} / {voluntary} / {involuntary} / {faults}")
}

/// Table with a row for each subject and a column for each file.
fn by_subject(
    corner: &str,
    names: &[String],
    all: &[Standings],
    cell: impl Fn(&SubjectResult) -> String,
) -> Table {
    let mut head = vec![corner.to_string()];
    head.extend(names.iter().cloned());
    let mut table = Table::new(&head);
    for subject in subject_names(all) {
        let mut row = vec![subject.to_string()];
        let cells = all.iter().map(|standings| standings.result(subject));
        row.extend(cells.map(|result| result.map_or("-".to_string(), &cell)));
        table.row(&row);
    }
    table
}

fn subject_names(all: &[Standings]) -> Vec<&str> {
    let first = all.first().into_iter().flat_map(|standings| &standings.results);
    first.map(|result| result.name.as_str()).collect()
}

/// Prints the allocated bytes of each copy of a sparse file.
fn sparse(route: &Route<'_>, all: &[Standings]) {
    for ((entry, _), standings) in route.from.iter().zip(all) {
        if entry.kind != Kind::Sparse {
            continue;
        }
        let kib = |result: &SubjectResult| {
            let bytes = result.samples(|step| step.allocated_bytes as f64).median();
            format!("{} {} KiB", result.name, figure(bytes / 1024.0))
        };
        let measured = standings.results.iter().filter(|result| result.steps.is_ok());
        let each: Vec<String> = measured.map(kib).collect();
        println!(
            "- allocated for the copy of {} (4 KiB of data): {}",
            entry.name(),
            each.join("; ")
        );
    }
}

/// Compares Evermap with the fastest peer, file by file.
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
        let Some(peer) = fastest_peer(standings) else { continue };
        let (Some(own), Some(ratios)) = (standings.result(POLICY), against_fastest(standings))
        else {
            continue;
        };
        let by = own.about.engines.as_deref().unwrap_or("?");
        let met = if ratios.median() <= SLOWER_MOST { "yes" } else { "**no**" };
        let (peer_ms, own_ms) = (wall_ms(peer).to_string(), wall_ms(own).to_string());
        table.row(&[name, &peer.name, &peer_ms, &own_ms, &ratios.to_string(), met, by]);
    }
    if all.iter().any(|standings| standings.result(POLICY).is_some()) {
        println!("\n{table}");
    }
}

/// Returns the time of `evermap copy` divided by the fastest peer's.
pub fn against_fastest(standings: &Standings) -> Option<Samples> {
    let peer = fastest_peer(standings)?.name.clone();
    standings.ratios(POLICY, &peer, |step| step.cost.wall_ms())
}

/// Judges the goal of each measured cell.
pub fn goals(bench: &mut Bench) {
    let limit = Goal::AtMost(SLOWER_MOST);
    for standings in &bench.own.standings {
        let Some(ratios) = against_fastest(standings) else { continue };
        let peer = fastest_peer(standings).map_or("", |result| result.name.as_str());
        let what = format!("{}: evermap / fastest peer", standings.cell.name);
        bench.goals.judge(&what, peer, &ratios, limit);
    }
    if bench.own.standings.is_empty() {
        let what = "every cell of `files`: evermap / fastest peer";
        bench.goals.unmeasured(what, limit, "run `files` in the same run");
    }
}

/// Heat map of the time of each subject divided by the time of cp.
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
            "wall time divided by that of `{TO}` (median of the rounds' ratios); less is better"
        ),
        columns: names.to_vec(),
        rows: rows.collect(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::AREA;

    fn wanted(arguments: &[&str]) -> Vec<(bool, bool)> {
        let options = Options::parse(arguments, &[], &AREA.choices, &|_| None).unwrap().unwrap();
        STATES.into_iter().filter(|(cold, synced)| wants_state(&options, *cold, *synced)).collect()
    }

    #[test]
    fn a_named_state_excludes_the_other_one_of_its_pair() {
        assert_eq!(wanted(&[]), STATES);
        assert_eq!(wanted(&["--states", "cold,synced"]), [(true, true)]);
        assert_eq!(wanted(&["--states", "cold"]), [(true, false), (true, true)]);
        assert_eq!(wanted(&["--quick"]), [(false, false), (true, true)]);
        assert_eq!(wanted(&["--quick", "--states", "cold,synced"]), [(true, true)]);
    }
}
