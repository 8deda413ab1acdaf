//! Readers that come at any instant of a writer's work, and stay.
//!
//! A history runs again for each of its operations; before it, another process opens the object for
//! reading. It must see a commit that was not over, and the same one at every later instant, whatever
//! the writer does to log and file meanwhile.

use std::sync::{Arc, Mutex, PoisonError};

use super::history::{HISTORIES, History, follow};
use super::image::Operation;
use super::model::{Mark, Model, Stamp};
use super::runner::{Runner, fresh_image};
use super::subject::{Neighbour, Worker};
use crate::mutate::{Mutant, take_away};

/// Histories in which much is applied, cut, removed and replaced.
const RESTLESS: &[&str] = &[
    "a_short_log_is_emptied_again_and_again",
    "pages_are_given_back_after_each_commit",
    "sessions_one_after_the_other",
    "object_gains_a_region",
    "close_gives_back_what_growing_left",
    "recovery_after_sessions_that_were_not_closed",
];

/// A process that comes at one operation and looks at all later ones.
#[derive(Default)]
struct Visit {
    operation: usize,
    neighbour: Option<(Neighbour, Stamp)>,
    wrong: Option<String>,
}

impl Visit {
    fn look(&mut self, runner: &super::disk::SimulatedDisk, comes_at: usize) {
        self.operation += 1;
        if self.wrong.is_some() || self.operation <= comes_at {
            return;
        }
        let looked = match &self.neighbour {
            Some((neighbour, seen)) => neighbour.look().map(|now| match now {
                Ok(now) if now == *seen => None,
                Ok(now) => Some(format!("saw {seen}, sees {now}")),
                Err(why) => Some(format!("saw {seen}; {why}")),
            }),
            None => Neighbour::open(runner).and_then(|come| {
                let Some(neighbour) = come else { return Ok(None) };
                match neighbour.look()? {
                    Ok(stamp) => {
                        runner.mark(Mark::SeenBeside(stamp));
                        self.neighbour = Some((neighbour, stamp));
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

fn visit(worker: &Worker, history: &History, comes_at: usize) -> Result<(), String> {
    let mut runner = Runner::new(worker, fresh_image(history.medium), 9);
    let (make, rest) = history.steps.split_at(1);
    runner.run(make).map_err(|e| e.to_string())?;
    let visit = Arc::new(Mutex::new(Visit::default()));
    let (disk, own) = (runner.disk.clone(), Arc::clone(&visit));
    runner.disk.before_each(Some(Box::new(move || {
        own.lock().unwrap_or_else(PoisonError::into_inner).look(&disk, comes_at);
    })));
    let ran = runner.run(rest);
    runner.disk.before_each(None);
    let trace = runner.disk.trace();
    let wrong = visit.lock().unwrap_or_else(PoisonError::into_inner).wrong.take();
    let at = |why: String| format!("history {}, comes at {comes_at}: {why}", history.name);
    ran.map_err(|why| at(why.to_string()))?;
    follow(&mut Model::default(), &trace.operations).map_err(at)?;
    wrong.map_or(Ok(()), |why| Err(at(why)))
}

/// Visits the restless histories at every operation. Gives the number of visits.
pub(super) fn visit_everywhere(worker: &Worker) -> Result<usize, String> {
    let mut visits = 0;
    for history in HISTORIES.iter().filter(|history| RESTLESS.contains(&history.name)) {
        let mut runner = Runner::new(worker, fresh_image(history.medium), 9);
        runner.run(history.steps).map_err(|e| e.to_string())?;
        let trace = runner.disk.trace();
        let named = |o: &Operation| matches!(o, Operation::Mark(Mark::Acknowledged(..)));
        let made = trace.operations.iter().position(named).unwrap_or(0);
        let operations = trace.operations[made..].iter().filter(|o| o.matters()).count();
        drop(runner);
        for comes_at in 0..operations {
            visit(worker, history, comes_at)?;
            visits += 1;
        }
    }
    Ok(visits)
}

#[test]
fn a_reader_that_comes_at_any_instant_sees_one_commit_for_good() {
    let visits = visit_everywhere(&Worker::new()).unwrap();
    println!("{visits} visits, none of which saw a mix");
    assert!(visits > 200);
}

#[test]
fn a_writer_that_waits_for_no_reader_is_noticed() {
    for mutant in [&[Mutant::ReadersNotWaitedFor], &[Mutant::SecondByteIgnored]] {
        take_away(mutant);
        let noticed = visit_everywhere(&Worker::new());
        take_away(&[]);
        println!("{mutant:?}: {noticed:?}");
        assert!(noticed.is_err(), "{mutant:?} was not noticed");
    }
}
