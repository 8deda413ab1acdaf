//! Readers that arrive at any moment of a writer's work and stay.
//!
//! A workload is run once for each of its operations. Before that operation, another process opens
//! the object for reading. It must see a current commit, and must see the same commit at every
//! later operation, whatever the writer does to the log and the file.

use std::sync::{Arc, Mutex, PoisonError};

use super::image::Operation;
use super::model::{Mark, Model, Stamp};
use super::runner::{Runner, fresh_image};
use super::subject::{SimulatedReader, Worker};
use super::workload::{WORKLOADS, Workload, follow};
use crate::mutate::{Mutant, disable};

/// Workloads with many checkpoints, truncations, removals and replacements.
const BUSY: &[&str] = &[
    "a_short_log_is_emptied_often",
    "pages_are_evicted_after_each_commit",
    "consecutive_sessions",
    "object_gains_a_region",
    "close_releases_unused_growth",
    "recovery_after_sessions_that_were_not_closed",
];

/// A process that arrives at one operation and verifies the object at all later ones.
#[derive(Default)]
struct LateReader {
    operation: usize,
    reader: Option<(SimulatedReader, Stamp)>,
    wrong: Option<String>,
}

impl LateReader {
    fn look(&mut self, runner: &super::disk::SimulatedDisk, arrives_at: usize) {
        self.operation += 1;
        if self.wrong.is_some() || self.operation <= arrives_at {
            return;
        }
        let looked = match &self.reader {
            Some((reader, seen)) => reader.look().map(|now| match now {
                Ok(now) if now == *seen => None,
                Ok(now) => Some(format!("saw {seen}, sees {now}")),
                Err(why) => Some(format!("saw {seen}; {why}")),
            }),
            None => SimulatedReader::open(runner).and_then(|come| {
                let Some(reader) = come else { return Ok(None) };
                match reader.look()? {
                    Ok(stamp) => {
                        runner.mark(Mark::SeenByReader(stamp));
                        self.reader = Some((reader, stamp));
                        Ok(None)
                    }
                    Err(why) => Ok(Some(why)),
                }
            }),
        };
        match looked {
            Ok(found) => self.wrong = found,
            Err(error) => self.wrong = Some(error.to_string()),
        }
        if let Some(wrong) = &mut self.wrong {
            *wrong = format!("before operation {}: {wrong}", self.operation);
        }
    }
}

fn visit(worker: &Worker, workload: &Workload, arrives_at: usize) -> Result<(), String> {
    let mut runner = Runner::new(worker, fresh_image(workload.medium), 9);
    let (make, rest) = workload.steps.split_at(1);
    runner.run(make).map_err(|e| e.to_string())?;
    let visit = Arc::new(Mutex::new(LateReader::default()));
    let (disk, own) = (runner.disk.clone(), Arc::clone(&visit));
    runner.disk.before_each(Some(Box::new(move || {
        own.lock().unwrap_or_else(PoisonError::into_inner).look(&disk, arrives_at);
    })));
    let ran = runner.run(rest);
    runner.disk.before_each(None);
    let trace = runner.disk.trace();
    let wrong = visit.lock().unwrap_or_else(PoisonError::into_inner).wrong.take();
    let at =
        |why: String| format!("workload {}, reader arrives at {arrives_at}: {why}", workload.name);
    ran.map_err(|why| at(why.to_string()))?;
    follow(&mut Model::default(), &trace.operations).map_err(at)?;
    wrong.map_or(Ok(()), |why| Err(at(why)))
}

/// Lets a reader arrive at every operation of the busy workloads. Returns the number of runs.
pub(super) fn read_at_every_operation(worker: &Worker) -> Result<usize, String> {
    let mut runs = 0;
    for workload in WORKLOADS.iter().filter(|workload| BUSY.contains(&workload.name)) {
        let mut runner = Runner::new(worker, fresh_image(workload.medium), 9);
        runner.run(workload.steps).map_err(|e| e.to_string())?;
        let trace = runner.disk.trace();
        let named = |o: &Operation| matches!(o, Operation::Mark(Mark::Acknowledged(..)));
        let made = trace.operations.iter().position(named).unwrap_or(0);
        let operations = trace.operations[made..].iter().filter(|o| o.matters()).count();
        drop(runner);
        for arrives_at in 0..operations {
            visit(worker, workload, arrives_at)?;
            runs += 1;
        }
    }
    Ok(runs)
}

#[test]
fn a_reader_that_arrives_at_any_moment_keeps_seeing_one_commit() {
    let runs = read_at_every_operation(&Worker::new()).unwrap();
    println!("{runs} runs with a reader, all correct");
    assert!(runs > 200);
}

#[test]
fn a_writer_that_does_not_wait_for_readers_is_detected() {
    for mutant in [&[Mutant::ReadersNotWaitedFor], &[Mutant::SecondByteIgnored]] {
        disable(mutant);
        let noticed = read_at_every_operation(&Worker::new());
        disable(&[]);
        println!("{mutant:?}: {noticed:?}");
        assert!(noticed.is_err(), "{mutant:?} was not detected");
    }
}
