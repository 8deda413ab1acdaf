//! Subjects in turns: each does the same once in every round, so that noise falls on all of them alike, and all have to come to
//! the same checksum. Round 0 does not count.

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

/// Looks until a file is out of the cache.
const LOOKS_MOST: usize = 5;

/// One thing to be done by all.
#[derive(Clone, Debug)]
pub struct Cell {
    pub section: &'static str,
    pub name: String,
    pub file: PathBuf,
    pub bytes: u64,
    pub is_cold: bool,
    pub work: Work,
    /// What the file system unpacked is cached elsewhere, too: cold takes all caches to be empty.
    pub is_packed: bool,
}

/// One load by one subject.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    #[serde(flatten)]
    pub taken: Taken,
    /// Of the whole process, with its start and its end.
    pub process: Cost,
    pub bytes: u64,
    /// Of the file, in the page cache, after the end.
    pub cached_bytes: u64,
    /// In the page cache and in private pages as well.
    pub duplicate_bytes: u64,
}

impl Measured {
    pub fn of(taken: Taken, process: Cost, bytes: u64, cached_bytes: u64) -> Measured {
        // Private pages that came are the file's: nothing else is done meanwhile.
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

/// What a subject came to.
#[derive(Clone, Debug)]
pub struct Lot {
    pub name: String,
    /// Of the rounds that count, or why there are none.
    pub steps: Result<Vec<Measured>, Failure>,
}

impl Lot {
    pub fn new(subject: &Subject) -> Lot {
        Lot { name: subject.name.clone(), steps: Ok(Vec::new()) }
    }

    pub fn samples(&self, of: impl Fn(&Measured) -> f64) -> Samples {
        let mut samples = Samples::new();
        self.steps.iter().flatten().for_each(|step| samples.push(of(step)));
        samples
    }

    pub fn finished_ms(&self) -> Samples {
        self.samples(Measured::finished_ms)
    }

    /// Evermap's method; all of them, where rounds differ.
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

    /// Who finished first by the median, apart from evermap's own decisions.
    pub fn best(&self) -> Option<&Lot> {
        let others = self.lots.iter().filter(|lot| !Subject::is_automatic(&lot.name));
        let measured = others.filter(|lot| lot.steps.is_ok());
        measured.min_by(|a, b| a.finished_ms().median().total_cmp(&b.finished_ms().median()))
    }

    /// `one` in parts of `other`, round by round.
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
    compete_beside(bench, cell, subjects, None)
}

/// Something else that has a turn in each round: it is told the number of the round.
pub type Beside<'a> = &'a mut dyn FnMut(&mut Bench, usize) -> Outcome;

/// The same with something beside them.
pub fn compete_beside(
    bench: &mut Bench,
    cell: &Cell,
    subjects: &[Subject],
    mut beside: Option<Beside<'_>>,
) -> Outcome<Standings> {
    let ready = Ready::new(bench, cell)?;
    let mut lots: Vec<Lot> = subjects.iter().map(Lot::new).collect();
    let turns = subjects.len() + usize::from(beside.is_some());
    for (round, index) in bench.options.turns(turns) {
        match (subjects.get(index), &mut beside) {
            (Some(subject), _) => {
                ready.turn(bench, cell, subject, (round, &mut lots[index]))?;
            }
            (None, Some(beside)) => beside(bench, round)?,
            (None, None) => {}
        }
    }
    eprintln!("{}: {}", cell.section, cell.name);
    Ok(Standings { cell: cell.clone(), lots })
}

/// What all steps of a cell need.
pub struct Ready {
    program: PathBuf,
    list: tempfile::NamedTempFile,
    checksum: String,
    /// A file of two pages, to have a program's own files in the cache again.
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

    /// One subject's turn, which counts unless it is round 0. After a failure there are no more.
    pub fn turn(
        &self,
        bench: &mut Bench,
        cell: &Cell,
        subject: &Subject,
        (round, lot): (usize, &mut Lot),
    ) -> Outcome {
        let Ok(steps) = &mut lot.steps else { return Ok(()) };
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
                lot.steps = Err(failure);
            }
        }
        Ok(())
    }

    /// One load: everything is made ready, measured, and looked at.
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

    /// A subject that saw other bytes ends the run.
    pub fn check(&self, cell: &Cell, subject: &Subject, taken: &Taken) -> Outcome {
        if taken.checksum == self.checksum {
            return Ok(());
        }
        let (name, wanted, got) = (&subject.name, &self.checksum, &taken.checksum);
        Err(format!("{}: **wrong bytes** by {name}: {got} instead of {wanted}", cell.name).into())
    }

    /// There is memory, and the page cache is as it should be.
    fn prepare(&self, bench: &Bench, cell: &Cell, subject: &Subject) -> Outcome {
        ends::go_on()?;
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
            // Whether it can do that is no matter.
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

/// Has nothing of a file in the page cache.
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

/// What of a file is in the page cache.
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

    fn lot(name: &str, walls_s: &[f64]) -> Lot {
        let step = |finished_s: &f64| {
            let taken = Taken { finished_s: *finished_s, ..Taken::default() };
            Measured::of(taken, Cost::default(), 1, 0)
        };
        Lot { name: name.to_string(), steps: Ok(walls_s.iter().map(step).collect()) }
    }

    fn standings(lots: Vec<Lot>) -> Standings {
        let cell = Cell {
            section: "cells",
            name: String::new(),
            file: PathBuf::new(),
            bytes: 1,
            is_cold: false,
            work: Work::read(100, Order::Sequential),
            is_packed: false,
        };
        Standings { cell, lots }
    }

    #[test]
    fn the_best_is_never_the_policy_itself_and_none_who_failed() {
        let mut broken = lot(MAP, &[]);
        broken.steps = Err("no".to_string());
        let lots =
            vec![lot(AUTOMATIC, &[1.0]), lot(READ, &[3.0]), lot("evermap read", &[2.0]), broken];
        assert_eq!(standings(lots).best().unwrap().name, "evermap read");
        assert!(standings(vec![lot(AUTOMATIC, &[1.0])]).best().is_none());
    }

    #[test]
    fn a_ratio_is_that_of_the_same_round() {
        let all = standings(vec![lot(AUTOMATIC, &[1.0, 2.0, 4.0]), lot(READ, &[2.0, 8.0, 4.0])]);
        let ratios = all.ratios(READ, AUTOMATIC, Measured::finished_ms).unwrap();
        assert_eq!((ratios.median(), ratios.min(), ratios.max()), (2.0, 1.0, 4.0));
        assert!(all.ratios(READ, MAP, |_| 1.0).is_none());
    }

    #[test]
    fn what_is_private_and_cached_is_there_twice() {
        let taken = Taken { private_bytes: 10, ..Taken::default() };
        let twice =
            |cached| Measured::of(taken.clone(), Cost::default(), 9, cached).duplicate_bytes;
        assert_eq!([twice(0), twice(4), twice(64)], [0, 4, 10]);
    }

    #[test]
    fn a_file_that_was_made_cold_is_not_cached() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![1; 1 << 20]).unwrap();
        if common::grounds::kind(file.path()) == Some("tmpfs") {
            return eprintln!("skipped: files for a while are in memory here");
        }
        assert_eq!(cached_bytes(file.path()).unwrap(), 1 << 20);
        make_cold(file.path(), false).unwrap();
        assert_eq!(cached_bytes(file.path()).unwrap(), 0);
    }
}
