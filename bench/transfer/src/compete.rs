//! Subjects in turns: each does the same once in every round, so that noise falls on all of them alike, and all have to
//! make a true copy. Round 0 does not count.

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

/// One thing to be done by all.
#[derive(Clone, Debug)]
pub struct Cell {
    pub section: &'static str,
    pub name: String,
    pub source: PathBuf,
    pub destination: PathBuf,
    /// Of all files together.
    pub bytes: u64,
    pub cold: bool,
    pub synced: bool,
    pub tree: bool,
    /// Count system calls in one more run of each.
    pub counted: bool,
}

/// One step of one subject.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Measured {
    #[serde(flatten)]
    pub cost: Cost,
    pub bytes: u64,
    pub allocated_bytes: u64,
}

/// What a subject came to.
#[derive(Clone, Debug)]
pub struct Lot {
    pub name: String,
    pub is_peer: bool,
    /// Of the rounds that count, or why there are none.
    pub steps: Result<Vec<Measured>, Failure>,
    pub system_calls: Option<u64>,
    /// Of Evermap: the engines that moved the bytes, as it reports.
    pub engines: Option<String>,
}

impl Lot {
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

/// How a cell ended.
#[derive(Clone, Debug)]
pub struct Standings {
    pub cell: Cell,
    pub lots: Vec<Lot>,
}

impl Standings {
    /// One that came to something.
    pub fn lot(&self, name: &str) -> Option<&Lot> {
        self.lots.iter().find(|lot| lot.name == name && lot.steps.is_ok())
    }

    /// The peer with the least median time.
    pub fn fastest_peer(&self) -> Option<&Lot> {
        let peers = self.lots.iter().filter(|lot| lot.is_peer && lot.steps.is_ok());
        peers.min_by(|a, b| a.wall_ms().median().total_cmp(&b.wall_ms().median()))
    }

    /// How often `other` fits `one`, round by round.
    pub fn ratios(&self, one: &str, other: &str, of: impl Fn(&Measured) -> f64) -> Option<Samples> {
        let steps = |name: &str| self.lot(name)?.steps.as_ref().ok();
        let mut samples = Samples::new();
        for (one, other) in steps(one)?.iter().zip(steps(other)?) {
            samples.push(of(one) / of(other));
        }
        Some(samples)
    }
}

/// Lets them compete.
pub fn compete(bench: &mut Bench, cell: &Cell, subjects: &[Subject]) -> Outcome<Standings> {
    let mut lots: Vec<Lot> = subjects.iter().map(new_lot).collect();
    caches::fill(&cell.source)?;
    for (round, index) in bench.options.turns(subjects.len()) {
        let (subject, lot) = (&subjects[index], &mut lots[index]);
        let Ok(steps) = &mut lot.steps else { continue };
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
                lot.steps = Err(failure);
            }
        }
    }
    if cell.counted {
        for (subject, lot) in subjects.iter().zip(&mut lots).filter(|(_, lot)| lot.steps.is_ok()) {
            lot.system_calls = count(bench, cell, subject)?;
        }
    }
    for (subject, lot) in subjects.iter().zip(&mut lots).filter(|(_, lot)| lot.steps.is_ok()) {
        lot.engines = engines(bench, cell, subject)?;
    }
    remove(&cell.destination)?;
    eprintln!("{}: {}", cell.section, cell.name);
    Ok(Standings { cell: cell.clone(), lots })
}

fn new_lot(subject: &Subject) -> Lot {
    let (name, is_peer) = (subject.name.clone(), subject.is_peer());
    Lot { name, is_peer, steps: Ok(Vec::new()), system_calls: None, engines: None }
}

/// One subject's turn: everything is made ready, timed, and looked at.
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

/// Nothing is there, nothing is to be written, the page cache is as it should be, and there is memory.
pub fn prepare(bench: &Bench, cell: &Cell, subject: &Subject) -> Outcome {
    ends::go_on()?;
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
        // Cold, the source needs pages, too.
        memory::warm(if cell.cold { 2 * cell.bytes } else { cell.bytes })?;
    }
    Ok(())
}

/// The program and its libraries are in the page cache again.
fn warm_program(cell: &Cell, subject: &Subject) -> Outcome {
    let folder = tempfile::tempdir()?;
    let (source, destination) = (folder.path().join("one"), folder.path().join("other"));
    std::fs::write(&source, "x")?;
    let task =
        Task { source: &source, destination: &destination, synced: cell.synced, tree: false };
    // Whether it can do that is no matter.
    process::run(subject.job(task))?.map(|_| ()).or_else(|_| Ok(()))
}

fn count(bench: &Bench, cell: &Cell, subject: &Subject) -> Outcome<Option<u64>> {
    prepare(bench, cell, subject)?;
    let count = bench.counter.count(subject.job(task(cell)))?;
    Ok(count.ok())
}

/// One more run that is not timed: what moved the bytes?
pub fn engines(bench: &Bench, cell: &Cell, subject: &Subject) -> Outcome<Option<String>> {
    let report = tempfile::NamedTempFile::new()?;
    let Some(job) = subject.job_with_report(task(cell), report.path()) else { return Ok(None) };
    prepare(bench, cell, subject)?;
    match process::run(job)? {
        Ok(_) => Ok(subjects::engines_of_report(&std::fs::read_to_string(report.path())?)),
        Err(_) => Ok(None),
    }
}

/// A tree that was made gets another name. ext4 gives no inode again that was freed within the last minute, and looks at each
/// of those whenever it needs one: with a removed tree of 10,000 files before it, the next one takes ten times as long.
fn set_aside(tree: &Path) -> Outcome {
    if !tree.try_exists()? {
        return Ok(());
    }
    let parent = tree.parent().ok_or("a tree is in a folder")?;
    let aside = tempfile::Builder::new().prefix("aside-").tempdir_in(parent)?.keep();
    Ok(std::fs::rename(tree, aside.join("tree"))?)
}

/// A copy that was made, whatever it is.
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

    fn lot(name: &str, is_peer: bool, walls_ms: &[u64]) -> Lot {
        let step = |ms: &u64| Measured {
            cost: Cost { wall_ns: ms * 1_000_000, ..Cost::default() },
            bytes: 1,
            allocated_bytes: 0,
        };
        let steps = Ok(walls_ms.iter().map(step).collect());
        Lot { name: name.to_string(), is_peer, steps, system_calls: None, engines: None }
    }

    fn standings(lots: Vec<Lot>) -> Standings {
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
        Standings { cell, lots }
    }

    #[test]
    fn a_ratio_is_that_of_the_same_round() {
        let all =
            standings(vec![lot("evermap copy", false, &[1, 2, 4]), lot("cp", true, &[2, 8, 4])]);
        let ratios = all.ratios("cp", "evermap copy", |step| step.cost.wall_ms()).unwrap();
        assert_eq!((ratios.median(), ratios.min(), ratios.max()), (2.0, 1.0, 4.0));
        assert!(all.ratios("cp", "pv", |_| 1.0).is_none());
    }

    #[test]
    fn the_fastest_peer_is_a_peer_that_came_to_something() {
        let mut broken = lot("pv", true, &[]);
        broken.steps = Err("no".to_string());
        let lots = vec![
            lot("evermap copy", false, &[1]),
            lot("cp", true, &[3]),
            lot("dd", true, &[2]),
            broken,
        ];
        assert_eq!(standings(lots).fastest_peer().unwrap().name, "dd");
        assert!(standings(vec![lot("evermap copy", false, &[1])]).fastest_peer().is_none());
    }
}
