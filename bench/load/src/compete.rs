//! Runs the subjects in turns. Each does the same work once in every round, so that noise affects
//! all of them alike, and all must reach the same checksum. Round 0 does not count.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use harness::Outcome;
use harness::process::{self, Cost, Failure};
use harness::samples::Samples;
use harness::{caches, ends, memory};
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

pub type SubjectResult = harness::compete::SubjectResult<Measured>;
pub type Standings = harness::compete::Standings<Cell, Measured>;

pub fn finished_ms(result: &SubjectResult) -> Samples {
    result.samples(Measured::finished_ms)
}

/// Returns Evermap's method, or all methods if rounds differ.
pub fn methods(result: &SubjectResult) -> String {
    let mut all: Vec<&str> = Vec::new();
    for step in result.steps.iter().flatten() {
        match step.taken.method.as_deref() {
            Some(method) if !all.contains(&method) => all.push(method),
            _ => {}
        }
    }
    all.join(", ")
}

/// Returns the subject with the least median time. Evermap's own policies do not take part.
pub fn best(standings: &Standings) -> Option<&SubjectResult> {
    standings.least(|result| !Subject::is_automatic(&result.name), Measured::finished_ms)
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
    let mut results: Vec<SubjectResult> =
        subjects.iter().map(|subject| SubjectResult::new(&subject.name, ())).collect();
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
        if result.steps.is_err() {
            return Ok(());
        }
        let step = self.step(bench, cell, subject)?;
        result.note(bench, (cell.section, &cell.name, round), step)
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
        if harness::volumes::kind(file.path()) == Some("tmpfs") {
            return eprintln!("skipped: temporary files are in memory here");
        }
        assert_eq!(cached_bytes(file.path()).unwrap(), 1 << 20);
        make_cold(file.path(), false).unwrap();
        assert_eq!(cached_bytes(file.path()).unwrap(), 0);
    }
}
