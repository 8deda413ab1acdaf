//! Errors at every call: a full disk, a device that fails, a write that stops half-way.
//!
//! A history runs again for each of its calls and each kind of error. The program does what an
//! honest one would: it tries again what was refused, gives a poisoned session up, and opens the
//! object anew. Then the disk is cut, and the model judges what is there.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::disk::{Failure, Fault};
use super::explore::{Tally, descend};
use super::history::{HISTORIES, History, begin, follow};
use super::model::{End, Model};
use super::random::Random;
use super::runner::{Runner, Step, Trouble};
use super::subject::Worker;
use crate::error::Error;

/// What a history came to that met errors.
struct Course<'a> {
    runner: Runner<'a>,
    fault: Fault,
}

impl Course<'_> {
    /// A step, tried again where trying again is right. `Err` is a broken promise.
    fn step(&mut self, step: Step) -> Result<Flow, String> {
        let error = match self.runner.step(step) {
            Ok(()) => return Ok(Flow::On),
            Err(Trouble::Judged(why)) => return Err(format!("{step:?}: {why}")),
            Err(Trouble::Engine(error)) => error,
        };
        if !is_of_a_disk(&error) {
            return Err(format!("{step:?}: an error of the disk came out as: {error}"));
        }
        match step {
            // Nothing has a name yet.
            Step::Make { .. } | Step::MakePermanent { .. } => Ok(Flow::Over),
            Step::Open | Step::OpenWith(_) | Step::Read | Step::ForeignLog => {
                self.again(step, error)
            }
            Step::Commit if matches!(error, Error::DurabilityUnknown { .. }) => {
                self.must_be_poisoned()?;
                self.open_anew()
            }
            Step::Commit => match self.again(step, error)? {
                Flow::On => Ok(Flow::On),
                Flow::Over => self.open_anew(),
            },
            // Room that is not there: the program goes on without it.
            Step::Change(_) => Ok(Flow::On),
            // The state is the last committed one, but not in this session.
            Step::CommitNothing
            | Step::Rollback
            | Step::Checkpoint
            | Step::Shrink
            | Step::Release
            | Step::Sync => self.open_anew(),
            // Whoever reads now could take what the kernel forgot to write for durable: a writer
            // has to come first, which writes it anew.
            Step::Close if matches!(error, Error::DurabilityUnknown { .. }) => {
                self.open_anew()?;
                self.runner.step(Step::Abandon).map_err(|e| e.to_string())?;
                Ok(Flow::On)
            }
            Step::Close | Step::Abandon => Ok(Flow::On),
            Step::NeighbourComes => self.again(step, error),
            // It is another process that met the error: it ends.
            Step::NeighbourLooks | Step::NeighbourGoes => self.again(step, error),
        }
    }

    /// An error that does not stay must not last.
    fn again(&mut self, step: Step, first: Error) -> Result<Flow, String> {
        match self.runner.step(step) {
            Ok(()) => Ok(Flow::On),
            Err(Trouble::Judged(why)) => Err(format!("{step:?} again: {why}")),
            Err(Trouble::Engine(error)) if self.fault.stays && is_of_a_disk(&error) => {
                Ok(Flow::Over)
            }
            Err(Trouble::Engine(Error::DurabilityUnknown { .. })) => Ok(Flow::Over),
            Err(Trouble::Engine(error)) => Err(format!("{step:?} again after `{first}`: {error}")),
        }
    }

    fn must_be_poisoned(&mut self) -> Result<(), String> {
        match self.runner.step(Step::Commit) {
            Err(Trouble::Engine(Error::DurabilityUnknown { .. })) => Ok(()),
            other => Err(format!("a commit after an unknown one came to {other:?}")),
        }
    }

    fn open_anew(&mut self) -> Result<Flow, String> {
        self.runner.step(Step::Abandon).map_err(|e| e.to_string())?;
        match self.runner.step(Step::Open) {
            Ok(()) => Ok(Flow::On),
            Err(Trouble::Engine(e)) if self.fault.stays && is_of_a_disk(&e) => Ok(Flow::Over),
            Err(trouble) => Err(format!("opened again: {trouble}")),
        }
    }
}

enum Flow {
    On,
    Over,
}

/// Errors that an error of the disk may come out as.
fn is_of_a_disk(error: &Error) -> bool {
    matches!(error, Error::Io { .. } | Error::DiskFull { .. } | Error::DurabilityUnknown { .. })
}

fn run_with(
    worker: &Worker,
    history: &History,
    fault: Fault,
    goes_on_elsewhere: bool,
    random: &mut Random,
    tally: &mut Tally,
) -> Result<(), String> {
    let (mut runner, earlier) = begin(worker, history, fault.at_call as u64)?;
    runner.goes_on_elsewhere = goes_on_elsewhere;
    runner.disk.fail(Some(fault));
    let mut course = Course { runner, fault };
    let ran = catch_unwind(AssertUnwindSafe(|| {
        for step in history.steps {
            if let Flow::Over = course.step(*step)? {
                break;
            }
        }
        Ok(())
    }));
    let disk = course.runner.disk.clone();
    let trace = disk.trace();
    drop(course);
    let at = |why| format!("at `{}`: {why}", disk.faults().join(", "));
    ran.unwrap_or_else(|_| Err("a panic".to_string())).map_err(at)?;
    if let [path, ..] = &disk.second_tries()[..] {
        return Err(format!("a flush of {} that failed was tried again", path.display()));
    }
    let mut model = Model::default();
    follow(&mut model, &earlier)?;
    follow(&mut model, &trace.operations).map_err(at)?;
    let (image, end) = match random.chance(1, 2) {
        true => (disk.image(), End::Kill),
        false => (disk.image().power_cut(None, random), End::PowerCut),
    };
    model.ended(end);
    descend(worker, image, model, 0, random, tally)
        .map_err(|why| at(format!("{end:?} after the errors, {why}")))
}

fn faults_at(at_call: usize, takes_room: bool) -> Vec<Fault> {
    let fault = |failure, stays| Fault { at_call, failure, stays };
    let mut faults = vec![fault(Failure::Device, false)];
    if takes_room {
        faults.push(fault(Failure::Full, false));
        faults.push(fault(Failure::Full, true));
        faults.push(fault(Failure::Short, false));
        faults.push(fault(Failure::Short, true));
    }
    faults
}

/// Runs a history with an error at each of its calls in turn. The seed decides how each run ends.
pub(super) fn fail_every_call(
    worker: &Worker,
    history: &History,
    seed: u64,
    tally: &mut Tally,
) -> Result<u64, String> {
    let (mut runner, _) = begin(worker, history, 0)?;
    runner.run(history.steps).map_err(|e| format!("history {}: {e}", history.name))?;
    let calls = runner.disk.calls();
    drop(runner);
    // Only of a log that is kept does a process remember anything.
    let mut steps = history.earlier.iter().chain(history.steps);
    let is_kept = steps.any(|step| matches!(step, Step::MakePermanent { .. }));
    let places: &[bool] = if is_kept { &[false, true] } else { &[false] };
    let mut runs = 0;
    for (at_call, takes_room) in calls.into_iter().enumerate() {
        for fault in faults_at(at_call, takes_room) {
            for elsewhere in places {
                let mut random = Random::of(&[seed, at_call as u64, fault.failure as u64]);
                runs += 1;
                run_with(worker, history, fault, *elsewhere, &mut random, tally).map_err(
                    |why| {
                        let place = if *elsewhere { ", another process going on" } else { "" };
                        format!("history {} with {fault:?}{place}: {why}", history.name)
                    },
                )?;
            }
        }
    }
    Ok(runs)
}

#[test]
fn an_error_at_any_call_is_a_typed_error_and_loses_nothing() {
    let failed: Vec<String> = std::thread::scope(|scope| {
        let run = |own: usize| {
            let worker = Worker::new();
            let (mut tally, mut runs, mut failed) = (Tally::default(), 0, Vec::new());
            for history in HISTORIES.iter().skip(own).step_by(super::threads()) {
                match fail_every_call(&worker, history, 0, &mut tally) {
                    Ok(more) => runs += more,
                    Err(why) => failed.push(why),
                }
            }
            println!("{runs} runs with an error, {} cuts after them", tally.cuts);
            failed
        };
        let handles: Vec<_> =
            (0..super::threads()).map(|own| scope.spawn(move || run(own))).collect();
        handles.into_iter().flat_map(|handle| handle.join().unwrap()).collect()
    });
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
