//! Runs the subjects in turns. Each does the same work once in every round, so that noise affects
//! all of them alike, and all must reach the same checksum. Round 0 does not count.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use common::Outcome;
use common::process::{self, Cost, Failure};
use common::raw::Origin;
use common::samples::Samples;
use common::{caches, ends, memory};
use serde::Serialize;

use crate::bench::Bench;
use crate::child::Taken;
use crate::subjects::{Subject, Task};
use crate::work::{self, Order, PAGE_BYTES, Work};

/// Attempts to remove a file from the page cache.
const LOOKS_MOST: usize = 5;

/// Work that all subjects do.
#[derive(Clone, Debug)]
pub struct Cell {
    pub section: &'static str,
    pub name: String,
    pub file: PathBuf,
    pub bytes: u64,
    pub is_cold: bool,
    pub work: Work,
    /// The file system caches unpacked data elsewhere, too, so a cold step empties all caches.
    pub is_packed: bool,
}

/// Measurements of one load by one subject.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    #[serde(flatten)]
    pub taken: Taken,
    /// Cost of the whole process, with its start and end.
    pub process: Cost,
    pub bytes: u64,
    /// Bytes of the file in the page cache after the end.
    pub cached_bytes: u64,
    /// Bytes that are both in the page cache and in private pages.
    pub duplicate_bytes: u64,
}

impl Measured {
    pub fn of(taken: Taken, process: Cost, bytes: u64, cached_bytes: u64) -> Measured {
        // New private pages hold the file: the process does nothing else.
        let duplicate_bytes = taken.private_bytes.min(cached_bytes);
        Measured { taken, process, bytes, cached_bytes, duplicate_bytes }
    }

    pub fn finished_ms(&self) -> f64 {
        self.taken.finished_s * 1e3
    }

    pub fn system_ms(&self) -> f64 {
        self.taken.system_s * 1e3
    }

    pub fn faults(&self) -> f64 {
        (self.taken.minor_faults + self.taken.major_faults) as f64
    }
}

/// Result of one subject.
#[derive(Clone, Debug)]
pub struct SubjectResult {
    pub name: String,
    /// Measurements of the rounds that count, or the failure.
    pub steps: Result<Vec<Measured>, Failure>,
}

impl SubjectResult {
    pub fn new(subject: &Subject) -> SubjectResult {
        SubjectResult { name: subject.name.clone(), steps: Ok(Vec::new()) }
    }

    pub fn samples(&self, of: impl Fn(&Measured) -> f64) -> Samples {
        let mut samples = Samples::new();
        self.steps.iter().flatten().for_each(|step| samples.push(of(step)));
        samples
    }

    pub fn finished_ms(&self) -> Samples {
        self.samples(Measured::finished_ms)
    }

    /// Evermap's method, or all methods if rounds differ.
    pub fn methods(&self) -> String {
        let mut all: Vec<&str> = Vec::new();
        for step in self.steps.iter().flatten() {
            match step.taken.method.as_deref() {
                Some(method) if !all.contains(&method) => all.push(method),
                _ => {}
            }
        }
        all.join(", ")
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

    /// Returns the subject with the least median time. Evermap's own policies do not take part.
    pub fn best(&self) -> Option<&SubjectResult> {
        let others = self.results.iter().filter(|result| !Subject::is_automatic(&result.name));
        let measured = others.filter(|result| result.steps.is_ok());
        measured.min_by(|a, b| a.finished_ms().median().total_cmp(&b.finished_ms().median()))
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
    compete_beside(bench, cell, subjects, None)
}

/// Additional work that has a turn in each round; it receives the number of the round.
pub type Beside<'a> = &'a mut dyn FnMut(&mut Bench, usize) -> Outcome;

/// Like [`compete`], with additional work in each round.
pub fn compete_beside(
    bench: &mut Bench,
    cell: &Cell,
    subjects: &[Subject],
    mut beside: Option<Beside<'_>>,
) -> Outcome<Standings> {
    let ready = Ready::new(bench, cell)?;
    let mut results: Vec<SubjectResult> = subjects.iter().map(SubjectResult::new).collect();
    let turns = subjects.len() + usize::from(beside.is_some());
    for (round, index) in bench.options.turns(turns) {
        match (subjects.get(index), &mut beside) {
            (Some(subject), _) => {
                ready.turn(bench, cell, subject, (round, &mut results[index]))?;
            }
            (None, Some(beside)) => beside(bench, round)?,
            (None, None) => {}
        }
    }
    eprintln!("{}: {}", cell.section, cell.name);
    Ok(Standings { cell: cell.clone(), results })
}

/// Prepared state of a cell: its list of pages and its checksum.
pub struct Ready {
    program: PathBuf,
    list: tempfile::NamedTempFile,
    checksum: String,
    /// File of two pages that brings a program's own files back into the cache.
    small: Option<Small>,
}

struct Small {
    file: tempfile::NamedTempFile,
    list: tempfile::NamedTempFile,
}

impl Ready {
    pub fn new(bench: &Bench, cell: &Cell) -> Outcome<Ready> {
        let pages = cell.work.pages(cell.bytes);
        let list = tempfile::NamedTempFile::new()?;
        work::write_list(&pages, list.path())?;
        let checksum = work::expected(&cell.file, &pages, cell.work.is_written)?;
        let small = match cell.is_packed && cell.is_cold {
            true => Some(Small::new()?),
            false => None,
        };
        Ok(Ready { program: bench.options.program.clone(), list, checksum, small })
    }

    /// Runs one subject's turn, which counts unless it is round 0. A subject that failed has no
    /// more turns.
    pub fn turn(
        &self,
        bench: &mut Bench,
        cell: &Cell,
        subject: &Subject,
        (round, result): (usize, &mut SubjectResult),
    ) -> Outcome {
        let Ok(steps) = &mut result.steps else { return Ok(()) };
        match self.step(bench, cell, subject)? {
            Ok(measured) => {
                let subject = &subject.name;
                let origin = Origin { section: cell.section, cell: &cell.name, subject, round };
                bench.raw.add(origin, &measured)?;
                if round > 0 {
                    steps.push(measured);
                }
            }
            Err(failure) => {
                eprintln!("{}: {}: {failure}", cell.name, subject.name);
                result.steps = Err(failure);
            }
        }
        Ok(())
    }

    /// Prepares, runs and checks one load.
    pub fn step(
        &self,
        bench: &Bench,
        cell: &Cell,
        subject: &Subject,
    ) -> Outcome<Result<Measured, Failure>> {
        self.prepare(bench, cell, subject)?;
        let output = tempfile::NamedTempFile::new()?;
        let process = match process::run(subject.job(self.task(cell), output.path()))? {
            Ok(process) => process,
            Err(failure) => return Ok(Err(failure)),
        };
        let taken: Taken = serde_json::from_str(&std::fs::read_to_string(output.path())?)?;
        self.check(cell, subject, &taken)?;
        let cached_bytes = cached_bytes(&cell.file)?;
        Ok(Ok(Measured::of(taken, process, cell.bytes, cached_bytes)))
    }

    pub fn task<'a>(&'a self, cell: &'a Cell) -> Task<'a> {
        let (program, list) = (self.program.as_path(), self.list.path());
        Task { program, file: &cell.file, list, work: cell.work }
    }

    /// Returns an error, which ends the run, if the subject read other bytes.
    pub fn check(&self, cell: &Cell, subject: &Subject, taken: &Taken) -> Outcome {
        if taken.checksum == self.checksum {
            return Ok(());
        }
        let (name, wanted, got) = (&subject.name, &self.checksum, &taken.checksum);
        Err(format!("{}: **wrong bytes** by {name}: {got} instead of {wanted}", cell.name).into())
    }

    /// Provides memory and brings the page cache into the state of the cell.
    fn prepare(&self, bench: &Bench, cell: &Cell, subject: &Subject) -> Outcome {
        ends::check_interrupted()?;
        if bench.options.warm_memory {
            memory::warm(if cell.is_cold { 2 * cell.bytes } else { cell.bytes })?;
        }
        if !cell.is_cold {
            return caches::fill(&cell.file);
        }
        make_cold(&cell.file, cell.is_packed)?;
        if let Some(small) = &self.small {
            let work = Work::read(100, Order::Sequential);
            let (file, list) = (small.file.path(), small.list.path());
            let task = Task { program: &self.program, file, list, work };
            let output = tempfile::NamedTempFile::new()?;
            // Warms the cache only, so a failure does not matter.
            let _ = process::run(subject.job(task, output.path()))?;
        }
        Ok(())
    }
}

impl Small {
    fn new() -> Outcome<Small> {
        let (file, list) = (tempfile::NamedTempFile::new()?, tempfile::NamedTempFile::new()?);
        let folder = file.path().parent().ok_or("a file is in a folder")?;
        let name = file.path().file_name().ok_or("a file has a name")?.to_string_lossy();
        let bytes = 2 * PAGE_BYTES as u64;
        crate::corpus::make(folder, &name, bytes, crate::corpus::Content::Random)?;
        work::write_list(&[1], list.path())?;
        Ok(Small { file, list })
    }
}

/// Removes all of a file from the page cache.
pub fn make_cold(file: &Path, drop_all: bool) -> Outcome {
    for look in 0..LOOKS_MOST {
        match drop_all || look + 1 == LOOKS_MOST {
            true => caches::drop_all()?,
            false => caches::drop_file(file)?,
        }
        if cached_bytes(file)? == 0 {
            return Ok(());
        }
    }
    Err(format!("{} stays in the page cache", file.display()).into())
}

/// Returns how many bytes of a file are in the page cache.
pub fn cached_bytes(path: &Path) -> Outcome<u64> {
    let file = std::fs::File::open(path)?;
    match evermap_observe::residency(file.as_fd()) {
        Some(residency) => Ok(residency.resident_bytes),
        None => Ok((caches::resident_part(path)? * file.metadata()?.len() as f64) as u64),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::subjects::{AUTOMATIC, MAP, READ};

    fn result(name: &str, walls_s: &[f64]) -> SubjectResult {
        let step = |finished_s: &f64| {
            let taken = Taken { finished_s: *finished_s, ..Taken::default() };
            Measured::of(taken, Cost::default(), 1, 0)
        };
        SubjectResult { name: name.to_string(), steps: Ok(walls_s.iter().map(step).collect()) }
    }

    fn standings(results: Vec<SubjectResult>) -> Standings {
        let cell = Cell {
            section: "cells",
            name: String::new(),
            file: PathBuf::new(),
            bytes: 1,
            is_cold: false,
            work: Work::read(100, Order::Sequential),
            is_packed: false,
        };
        Standings { cell, results }
    }

    #[test]
    fn the_best_is_neither_a_policy_nor_a_failed_subject() {
        let mut broken = result(MAP, &[]);
        broken.steps = Err("no".to_string());
        let results = vec![
            result(AUTOMATIC, &[1.0]),
            result(READ, &[3.0]),
            result("evermap read", &[2.0]),
            broken,
        ];
        assert_eq!(standings(results).best().unwrap().name, "evermap read");
        assert!(standings(vec![result(AUTOMATIC, &[1.0])]).best().is_none());
    }

    #[test]
    fn a_ratio_compares_figures_of_the_same_round() {
        let all =
            standings(vec![result(AUTOMATIC, &[1.0, 2.0, 4.0]), result(READ, &[2.0, 8.0, 4.0])]);
        let ratios = all.ratios(READ, AUTOMATIC, Measured::finished_ms).unwrap();
        assert_eq!((ratios.median(), ratios.min(), ratios.max()), (2.0, 1.0, 4.0));
        assert!(all.ratios(READ, MAP, |_| 1.0).is_none());
    }

    #[test]
    fn duplicate_bytes_are_both_private_and_cached() {
        let taken = Taken { private_bytes: 10, ..Taken::default() };
        let twice =
            |cached| Measured::of(taken.clone(), Cost::default(), 9, cached).duplicate_bytes;
        assert_eq!([twice(0), twice(4), twice(64)], [0, 4, 10]);
    }

    #[test]
    fn a_file_that_was_made_cold_is_not_cached() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![1; 1 << 20]).unwrap();
        if common::volumes::kind(file.path()) == Some("tmpfs") {
            return eprintln!("skipped: temporary files are in memory here");
        }
        assert_eq!(cached_bytes(file.path()).unwrap(), 1 << 20);
        make_cold(file.path(), false).unwrap();
        assert_eq!(cached_bytes(file.path()).unwrap(), 0);
    }
}
