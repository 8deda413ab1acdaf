//! Runs the subjects in turns. Each does the same work once in every round, so that noise affects
//! all of them alike, and all must make a correct copy. Round 0 does not count.

use std::path::{Path, PathBuf};

use common::Outcome;
use common::process::{self, Cost, Failure};
use common::raw::Origin;
use common::samples::Samples;
use common::{caches, ends, memory};
use serde::Serialize;

use crate::bench::Bench;
use crate::check::{self, Seen};
use crate::subjects;
use crate::subjects::{Subject, Task};

/// Work that all subjects do.
#[derive(Clone, Debug)]
pub struct Cell {
    pub section: &'static str,
    pub name: String,
    pub source: PathBuf,
    pub destination: PathBuf,
    /// Bytes of all files.
    pub bytes: u64,
    pub cold: bool,
    pub synced: bool,
    pub tree: bool,
    /// Counts system calls in an additional run of each subject.
    pub counted: bool,
}

/// Measurements of one step of one subject.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Measured {
    #[serde(flatten)]
    pub cost: Cost,
    pub bytes: u64,
    pub allocated_bytes: u64,
}

/// Result of one subject.
#[derive(Clone, Debug)]
pub struct SubjectResult {
    pub name: String,
    pub is_peer: bool,
    /// Measurements of the rounds that count, or the failure.
    pub steps: Result<Vec<Measured>, Failure>,
    pub system_calls: Option<u64>,
    /// Engines that moved the bytes, from Evermap's report.
    pub engines: Option<String>,
}

impl SubjectResult {
    pub fn samples(&self, of: impl Fn(&Measured) -> f64) -> Samples {
        let mut samples = Samples::new();
        self.steps.iter().flatten().for_each(|step| samples.push(of(step)));
        samples
    }

    pub fn wall_ms(&self) -> Samples {
        self.samples(|step| step.cost.wall_ms())
    }

    pub fn cpu_ms(&self) -> Samples {
        self.samples(|step| step.cost.cpu_ms())
    }
}

/// Results of one cell.
#[derive(Clone, Debug)]
pub struct Standings {
    pub cell: Cell,
    pub results: Vec<SubjectResult>,
}

impl Standings {
    /// Returns the result of this subject, unless it failed.
    pub fn result(&self, name: &str) -> Option<&SubjectResult> {
        self.results.iter().find(|result| result.name == name && result.steps.is_ok())
    }

    /// The peer with the least median time.
    pub fn fastest_peer(&self) -> Option<&SubjectResult> {
        let peers = self.results.iter().filter(|result| result.is_peer && result.steps.is_ok());
        peers.min_by(|a, b| a.wall_ms().median().total_cmp(&b.wall_ms().median()))
    }

    /// Returns `one` divided by `other`, round by round.
    pub fn ratios(&self, one: &str, other: &str, of: impl Fn(&Measured) -> f64) -> Option<Samples> {
        let steps = |name: &str| self.result(name)?.steps.as_ref().ok();
        let mut samples = Samples::new();
        for (one, other) in steps(one)?.iter().zip(steps(other)?) {
            samples.push(of(one) / of(other));
        }
        Some(samples)
    }
}

/// Runs all subjects of a cell.
pub fn compete(bench: &mut Bench, cell: &Cell, subjects: &[Subject]) -> Outcome<Standings> {
    let mut results: Vec<SubjectResult> = subjects.iter().map(new_result).collect();
    caches::fill(&cell.source)?;
    for (round, index) in bench.options.turns(subjects.len()) {
        let (subject, result) = (&subjects[index], &mut results[index]);
        let Ok(steps) = &mut result.steps else { continue };
        match step(bench, cell, subject)? {
            Ok(measured) => {
                let subject = &subject.name;
                let origin = Origin { section: cell.section, cell: &cell.name, subject, round };
                bench.raw.add(origin, measured)?;
                if round > 0 {
                    steps.push(measured);
                }
            }
            Err(failure) => {
                eprintln!("{}: {}: {failure}", cell.name, subject.name);
                result.steps = Err(failure);
            }
        }
    }
    if cell.counted {
        for (subject, result) in
            subjects.iter().zip(&mut results).filter(|(_, result)| result.steps.is_ok())
        {
            result.system_calls = count(bench, cell, subject)?;
        }
    }
    for (subject, result) in
        subjects.iter().zip(&mut results).filter(|(_, result)| result.steps.is_ok())
    {
        result.engines = engines(bench, cell, subject)?;
    }
    remove(&cell.destination)?;
    eprintln!("{}: {}", cell.section, cell.name);
    Ok(Standings { cell: cell.clone(), results })
}

fn new_result(subject: &Subject) -> SubjectResult {
    let (name, is_peer) = (subject.name.clone(), subject.is_peer());
    SubjectResult { name, is_peer, steps: Ok(Vec::new()), system_calls: None, engines: None }
}

/// Prepares, times and checks one step.
fn step(bench: &Bench, cell: &Cell, subject: &Subject) -> Outcome<Result<Measured, Failure>> {
    prepare(bench, cell, subject)?;
    let cost = match process::run(subject.job(task(cell)))? {
        Ok(cost) => cost,
        Err(failure) => return Ok(Err(failure)),
    };
    let Seen { allocated_bytes, .. } = check::copy(&cell.source, &cell.destination)
        .map_err(|error| format!("**wrong copy** by {}: {error}", subject.name))?;
    Ok(Ok(Measured { cost, bytes: cell.bytes, allocated_bytes }))
}

fn task(cell: &Cell) -> Task<'_> {
    let Cell { source, destination, synced, tree, .. } = cell;
    Task { source, destination, synced: *synced, tree: *tree }
}

/// Prepares a step: removes the copy, syncs the file system, and brings page cache and memory into
/// the state of the cell.
pub fn prepare(bench: &Bench, cell: &Cell, subject: &Subject) -> Outcome {
    ends::check_interrupted()?;
    match cell.tree {
        true => set_aside(&cell.destination)?,
        false => remove(&cell.destination)?,
    }
    let parent = cell.destination.parent().ok_or("a destination is in a folder")?;
    rustix::fs::syncfs(std::fs::File::open(parent)?)?;
    if cell.cold {
        caches::drop_all()?;
        warm_program(cell, subject)?;
    }
    if bench.options.warm_memory {
        // A cold source needs pages, too.
        memory::warm(if cell.cold { 2 * cell.bytes } else { cell.bytes })?;
    }
    Ok(())
}

/// Runs the program once, so that it and its libraries are in the page cache.
fn warm_program(cell: &Cell, subject: &Subject) -> Outcome {
    let folder = tempfile::tempdir()?;
    let (source, destination) = (folder.path().join("one"), folder.path().join("other"));
    std::fs::write(&source, "x")?;
    let task =
        Task { source: &source, destination: &destination, synced: cell.synced, tree: false };
    // Warms the cache only, so a failure does not matter.
    process::run(subject.job(task))?.map(|_| ()).or_else(|_| Ok(()))
}

fn count(bench: &Bench, cell: &Cell, subject: &Subject) -> Outcome<Option<u64>> {
    prepare(bench, cell, subject)?;
    let count = bench.counter.count(subject.job(task(cell)))?;
    Ok(count.ok())
}

/// Runs a subject once more, untimed, and returns the engines that moved the bytes.
pub fn engines(bench: &Bench, cell: &Cell, subject: &Subject) -> Outcome<Option<String>> {
    let report = tempfile::NamedTempFile::new()?;
    let Some(job) = subject.job_with_report(task(cell), report.path()) else { return Ok(None) };
    prepare(bench, cell, subject)?;
    match process::run(job)? {
        Ok(_) => Ok(subjects::engines_of_report(&std::fs::read_to_string(report.path())?)),
        Err(_) => Ok(None),
    }
}

/// Renames a copied tree instead of removing it. ext4 does not reuse an inode within a minute after
/// it was freed, and examines each such inode whenever it needs one: after the removal of a tree of
/// 10,000 files, the next tree takes ten times as long.
fn set_aside(tree: &Path) -> Outcome {
    if !tree.try_exists()? {
        return Ok(());
    }
    let parent = tree.parent().ok_or("a tree is in a folder")?;
    let aside = tempfile::Builder::new().prefix("aside-").tempdir_in(parent)?.keep();
    Ok(std::fs::rename(tree, aside.join("tree"))?)
}

/// Removes a copy, file or tree.
pub fn remove(path: &Path) -> Outcome {
    let removed = match path.symlink_metadata() {
        Ok(about) if about.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(_) => Ok(()),
    };
    Ok(removed?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn result(name: &str, is_peer: bool, walls_ms: &[u64]) -> SubjectResult {
        let step = |ms: &u64| Measured {
            cost: Cost { wall_ns: ms * 1_000_000, ..Cost::default() },
            bytes: 1,
            allocated_bytes: 0,
        };
        let steps = Ok(walls_ms.iter().map(step).collect());
        SubjectResult { name: name.to_string(), is_peer, steps, system_calls: None, engines: None }
    }

    fn standings(results: Vec<SubjectResult>) -> Standings {
        let cell = Cell {
            section: "files",
            name: String::new(),
            source: PathBuf::new(),
            destination: PathBuf::new(),
            bytes: 1,
            cold: false,
            synced: false,
            tree: false,
            counted: false,
        };
        Standings { cell, results }
    }

    #[test]
    fn a_ratio_compares_figures_of_the_same_round() {
        let all = standings(vec![
            result("evermap copy", false, &[1, 2, 4]),
            result("cp", true, &[2, 8, 4]),
        ]);
        let ratios = all.ratios("cp", "evermap copy", |step| step.cost.wall_ms()).unwrap();
        assert_eq!((ratios.median(), ratios.min(), ratios.max()), (2.0, 1.0, 4.0));
        assert!(all.ratios("cp", "pv", |_| 1.0).is_none());
    }

    #[test]
    fn the_fastest_peer_did_not_fail() {
        let mut broken = result("pv", true, &[]);
        broken.steps = Err("no".to_string());
        let results = vec![
            result("evermap copy", false, &[1]),
            result("cp", true, &[3]),
            result("dd", true, &[2]),
            broken,
        ];
        assert_eq!(standings(results).fastest_peer().unwrap().name, "dd");
        assert!(standings(vec![result("evermap copy", false, &[1])]).fastest_peer().is_none());
    }
}
