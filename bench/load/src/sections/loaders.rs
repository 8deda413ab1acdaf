//! Measures several programs that load at once, each its own file or all the same, and one program
//! with little memory: cold, all written.
//!
//! The processes begin together; the time ends with the slowest. The memory limit is a control
//! group's, 1.2 times the file: pages that are both cached and private may have to be evicted, and
//! private memory can't be.

use std::path::PathBuf;

use harness::process::{Cost, Failure};
use harness::raw::Origin;
use harness::samples::Samples;
use harness::table::Table;
use harness::units::{MIB, size};
use harness::{Outcome, ends, memory, volumes};
use serde::Serialize;

use super::tables;
use crate::bench::{self, Bench};
use crate::child::Taken;
use crate::compete::{
    Cell, Measured, Ready, Standings, SubjectResult, cached_bytes, make_cold, methods,
};
use crate::corpus::{self, Content};
use crate::group::Group;
use crate::subjects::Subject;
use crate::together;
use crate::work::{Order, Work};

use super::finish::SUBJECTS;

const LOADERS_MOST: usize = 4;
const LIMIT: f64 = 1.2;

/// Measurements of all loaders together.
#[derive(Clone, Copy, Debug, Serialize)]
struct Together {
    loaders: usize,
    slowest_s: f64,
    first_page_s: f64,
    system_s: f64,
    private_bytes: u64,
    cached_bytes: u64,
}

impl Together {
    fn of(all: &[(Taken, Cost)], cached_bytes: u64) -> Together {
        let most =
            |of: fn(&Taken) -> f64| all.iter().map(|(taken, _)| of(taken)).fold(0.0, f64::max);
        Together {
            loaders: all.len(),
            slowest_s: most(|taken| taken.finished_s),
            first_page_s: most(|taken| taken.first_page_s),
            system_s: all.iter().map(|(taken, _)| taken.system_s).sum(),
            private_bytes: all.iter().map(|(taken, _)| taken.private_bytes).sum(),
            cached_bytes,
        }
    }
}

/// Rounds of a subject in one arrangement, or its failure.
type Rounds = Result<Vec<Together>, Failure>;

pub fn report(bench: &mut Bench) -> Outcome {
    let subjects = bench::named(bench, &SUBJECTS);
    let bytes = bench.options.sizes_bytes.first().copied().unwrap_or(256 * MIB);
    let folder = bench.folder("loaders")?;
    if volumes::kind(&folder) == Some("tmpfs") {
        println!("**Skipped**: the folder to measure is in memory, where nothing is cold.\n");
        return Ok(());
    }
    let files = (0..LOADERS_MOST)
        .map(|number| corpus::make(&folder, &format!("file-{number}"), bytes, Content::Random))
        .collect::<Outcome<Vec<PathBuf>>>()?;
    let mut columns = Vec::new();
    let mut all = Vec::new();
    for loaders in 1..=LOADERS_MOST {
        for is_same in [true, false] {
            if loaders == 1 && is_same {
                continue;
            }
            let files: Vec<&PathBuf> =
                (0..loaders).map(|number| &files[if is_same { 0 } else { number }]).collect();
            let name = match (loaders, is_same) {
                (1, _) => "1".to_string(),
                (_, true) => format!("{loaders}, same file"),
                (_, false) => format!("{loaders}, own files"),
            };
            all.push(arrangement(bench, &name, &files, bytes, &subjects)?);
            columns.push(name);
        }
    }
    println!("### {} each, cold, all written\n", size(bytes));
    let table = |corner: &str, of: &dyn Fn(&Together) -> f64| {
        println!("{}", rows(corner, &columns, &subjects, &all, of));
    };
    table("slowest finished, ms", &|all| all.slowest_s * 1e3);
    table("last first page, ms", &|all| all.first_page_s * 1e3);
    table("system time of all, ms", &|all| all.system_s * 1e3);
    table("private and cached, MiB", &|all| {
        (all.private_bytes + all.cached_bytes) as f64 / MIB as f64
    });
    limited(bench, &files[0], bytes, &subjects)?;
    std::fs::remove_dir_all(folder)?;
    Ok(())
}

fn rows(
    corner: &str,
    columns: &[String],
    subjects: &[Subject],
    all: &[Vec<Rounds>],
    of: &dyn Fn(&Together) -> f64,
) -> Table {
    let mut head = vec![corner.to_string()];
    head.extend(columns.iter().cloned());
    let mut table = Table::new(&head);
    for (index, subject) in subjects.iter().enumerate() {
        let mut row = vec![subject.name.clone()];
        row.extend(all.iter().map(|arrangement| match &arrangement[index] {
            Ok(rounds) => {
                let mut samples = Samples::new();
                rounds.iter().for_each(|together| samples.push(of(together)));
                samples.to_string()
            }
            Err(_) => "-".to_string(),
        }));
        table.row(&row);
    }
    table
}

fn cell(name: &str, file: &std::path::Path, bytes: u64) -> Cell {
    Cell {
        section: "loaders",
        name: name.to_string(),
        file: file.to_path_buf(),
        bytes,
        is_cold: true,
        work: Work::written(100, Order::Sequential),
        is_packed: false,
    }
}

/// Runs one loader for each of these files at once, by each subject in turns.
fn arrangement(
    bench: &mut Bench,
    name: &str,
    files: &[&PathBuf],
    bytes: u64,
    subjects: &[Subject],
) -> Outcome<Vec<Rounds>> {
    let cells: Vec<Cell> = files.iter().map(|file| cell(name, file, bytes)).collect();
    let ready =
        cells.iter().map(|cell| Ready::new(bench, cell)).collect::<Outcome<Vec<Ready>>>()?;
    let mut all: Vec<Rounds> = subjects.iter().map(|_| Ok(Vec::new())).collect();
    for (round, index) in bench.options.turns(subjects.len()) {
        let subject = &subjects[index];
        let Ok(rounds) = &mut all[index] else { continue };
        ends::check_interrupted()?;
        if bench.options.warm_memory {
            memory::warm(2 * bytes * files.len() as u64)?;
        }
        files.iter().try_for_each(|file| make_cold(file, false))?;
        let commands = ready.iter().zip(&cells);
        let commands = commands.map(|(ready, cell)| subject.command(ready.task(cell))).collect();
        match together::run(commands)? {
            Ok(taken) => {
                for ((ready, cell), (taken, _)) in ready.iter().zip(&cells).zip(&taken) {
                    ready.check(cell, subject, taken)?;
                }
                let mut different: Vec<&PathBuf> = files.to_vec();
                different.dedup();
                let cached = different.into_iter().map(|file| cached_bytes(file));
                let together = Together::of(&taken, cached.sum::<Outcome<u64>>()?);
                let subject = &subject.name;
                let origin = Origin { section: "loaders", cell: name, subject, round };
                bench.raw.add(origin, together)?;
                if round > 0 {
                    rounds.push(together);
                }
            }
            Err(failure) => {
                eprintln!("loaders: {name}: {}: {failure}", subject.name);
                all[index] = Err(failure);
            }
        }
    }
    eprintln!("loaders: {name}");
    Ok(all)
}

/// Measures one loader with little memory.
fn limited(bench: &mut Bench, file: &std::path::Path, bytes: u64, subjects: &[Subject]) -> Outcome {
    let name = format!("1, in {LIMIT} times the memory");
    println!("### One, in a control group of {LIMIT} times the file\n");
    let cell = cell(&name, file, bytes);
    let ready = Ready::new(bench, &cell)?;
    // Adds room for the process itself, because a quick run's file is small.
    let limit_bytes = (bytes as f64 * LIMIT) as u64 + 4 * MIB;
    let mut results: Vec<SubjectResult> =
        subjects.iter().map(|subject| SubjectResult::new(&subject.name, ())).collect();
    for (round, index) in bench.options.turns(subjects.len()) {
        let (subject, result) = (&subjects[index], &mut results[index]);
        let Ok(steps) = &mut result.steps else { continue };
        ends::check_interrupted()?;
        if bench.options.warm_memory {
            memory::warm(2 * bytes)?;
        }
        make_cold(file, false)?;
        let made = Group::new(&mut bench.guard, limit_bytes);
        let Some(group) = harness::bench::skip_on_error("a limit of memory", made) else {
            return Ok(());
        };
        let mut command = subject.command(ready.task(&cell));
        command.arg("--group").arg(group.folder());
        match together::run(vec![command])? {
            Ok(all) => {
                for (taken, cost) in all {
                    ready.check(&cell, subject, &taken)?;
                    let measured = Measured::of(taken, cost, bytes, cached_bytes(file)?);
                    let subject = &subject.name;
                    let origin = Origin { section: "loaders", cell: &name, subject, round };
                    bench.raw.add(origin, &measured)?;
                    if round > 0 {
                        steps.push(measured);
                    }
                }
            }
            Err(failure) => {
                eprintln!("loaders: {name}: {}: {failure}", subject.name);
                result.steps = Err(failure);
            }
        }
    }
    let all = [Standings { cell, results }];
    println!("{}", tables::by_subject("finished, ms", &[name], &all, tables::finished));
    println!("{}", tables::costs(&all[0]));
    let picked = picked(&all[0]);
    if !picked.is_empty() {
        println!("Picked: {picked}\n");
    }
    tables::failures(&all);
    Ok(())
}

/// Lists the methods that evermap's policies chose.
fn picked(standings: &Standings) -> String {
    let results = standings.results.iter().filter(|result| Subject::is_automatic(&result.name));
    let each: Vec<String> =
        results.map(|result| format!("`{}` {}", result.name, methods(result))).collect();
    each.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_the_slowest_and_work_and_memory_are_sums() {
        let taken = |finished_s, system_s| Taken {
            finished_s,
            system_s,
            private_bytes: 5,
            ..Taken::default()
        };
        let all = [(taken(1.0, 0.5), Cost::default()), (taken(3.0, 0.25), Cost::default())];
        let together = Together::of(&all, 7);
        assert_eq!((together.slowest_s, together.system_s), (3.0, 0.75));
        assert_eq!((together.private_bytes, together.cached_bytes), (10, 7));
    }
}
