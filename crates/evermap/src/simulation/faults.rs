//! Errors at each call: a full disk, a failing device, a write that stops half-way.
//!
//! A workload is run once for each of its calls and each kind of error. The program reacts
//! correctly: it retries what was refused, abandons a poisoned session, and reopens the object.
//! Then the disk is crashed, and the model judges the state.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::disk::{Failure, Fault};
use super::explore::{Tally, recover_and_judge};
use super::model::{End, Model};
use super::random::Random;
use super::runner::{Runner, Step, StepError};
use super::subject::Worker;
use super::workload::{WORKLOADS, Workload, begin, follow};
use crate::error::Error;

/// A run of a workload with an injected fault.
struct FaultyRun<'a> {
    runner: Runner<'a>,
    fault: Fault,
}

impl FaultyRun<'_> {
    /// Runs a step, and retries it where that is correct. `Err` means a broken promise.
    fn step(&mut self, step: Step) -> Result<Flow, String> {
        let error = match self.runner.step(step) {
            Ok(()) => return Ok(Flow::Continue),
            Err(StepError::Violation(why)) => return Err(format!("{step:?}: {why}")),
            Err(StepError::Engine(error)) => error,
        };
        if !is_of_a_disk(&error) {
            return Err(format!("{step:?}: a disk error became: {error}"));
        }
        match step {
            // The object has no name yet.
            Step::Make { .. } | Step::MakePermanent { .. } => Ok(Flow::Done),
            Step::Open | Step::OpenWith(_) | Step::Read | Step::ForeignLog => {
                self.retry(step, error)
            }
            Step::Commit if matches!(error, Error::DurabilityUnknown { .. }) => {
                self.must_be_poisoned()?;
                self.reopen()
            }
            Step::Commit => match self.retry(step, error)? {
                Flow::Continue => Ok(Flow::Continue),
                Flow::Done => self.reopen(),
            },
            // Not enough space: the program continues without the change.
            Step::Change(_) => Ok(Flow::Continue),
            // The state is the last committed one, but this session cannot continue.
            Step::CommitNothing
            | Step::Rollback
            | Step::Checkpoint
            | Step::Shrink
            | Step::Release
            | Step::Sync => self.reopen(),
            // A reader that came first could take data for durable that the kernel dropped. So a
            // writer opens the object first and writes the data again.
            Step::Close if matches!(error, Error::DurabilityUnknown { .. }) => {
                self.reopen()?;
                self.runner.step(Step::Abandon).map_err(|e| e.to_string())?;
                Ok(Flow::Continue)
            }
            Step::Close | Step::Abandon => Ok(Flow::Continue),
            Step::ReaderOpens => self.retry(step, error),
            // Another process met the error and ends.
            Step::ReaderChecks | Step::ReaderCloses => self.retry(step, error),
        }
    }

    /// Retries a step. A temporary error must not persist.
    fn retry(&mut self, step: Step, first: Error) -> Result<Flow, String> {
        match self.runner.step(step) {
            Ok(()) => Ok(Flow::Continue),
            Err(StepError::Violation(why)) => Err(format!("{step:?} retried: {why}")),
            Err(StepError::Engine(error)) if self.fault.persistent && is_of_a_disk(&error) => {
                Ok(Flow::Done)
            }
            Err(StepError::Engine(Error::DurabilityUnknown { .. })) => Ok(Flow::Done),
            Err(StepError::Engine(error)) => {
                Err(format!("{step:?} retried after `{first}`: {error}"))
            }
        }
    }

    fn must_be_poisoned(&mut self) -> Result<(), String> {
        match self.runner.step(Step::Commit) {
            Err(StepError::Engine(Error::DurabilityUnknown { .. })) => Ok(()),
            other => Err(format!("a commit after an unknown one returned {other:?}")),
        }
    }

    fn reopen(&mut self) -> Result<Flow, String> {
        self.runner.step(Step::Abandon).map_err(|e| e.to_string())?;
        match self.runner.step(Step::Open) {
            Ok(()) => Ok(Flow::Continue),
            Err(StepError::Engine(e)) if self.fault.persistent && is_of_a_disk(&e) => {
                Ok(Flow::Done)
            }
            Err(error) => Err(format!("reopened: {error}")),
        }
    }
}

enum Flow {
    Continue,
    Done,
}

/// Returns true for the errors that a disk error may cause.
fn is_of_a_disk(error: &Error) -> bool {
    matches!(error, Error::Io { .. } | Error::DiskFull { .. } | Error::DurabilityUnknown { .. })
}

fn run_with(
    worker: &Worker,
    workload: &Workload,
    fault: Fault,
    continues_elsewhere: bool,
    random: &mut Random,
    tally: &mut Tally,
) -> Result<(), String> {
    let (mut runner, earlier) = begin(worker, workload, fault.at_call as u64)?;
    runner.continues_elsewhere = continues_elsewhere;
    runner.disk.fail(Some(fault));
    let mut faulty_run = FaultyRun { runner, fault };
    let ran = catch_unwind(AssertUnwindSafe(|| {
        for step in workload.steps {
            if let Flow::Done = faulty_run.step(*step)? {
                break;
            }
        }
        Ok(())
    }));
    let disk = faulty_run.runner.disk.clone();
    let trace = disk.trace();
    drop(faulty_run);
    let at = |why| format!("at `{}`: {why}", disk.faults().join(", "));
    ran.unwrap_or_else(|_| Err("a panic".to_string())).map_err(at)?;
    if let [path, ..] = &disk.retried_flushes()[..] {
        return Err(format!("a flush of {} was retried after a failure", path.display()));
    }
    let mut model = Model::default();
    follow(&mut model, &earlier)?;
    follow(&mut model, &trace.operations).map_err(at)?;
    let (image, end) = match random.chance(1, 2) {
        true => (disk.image(), End::Kill),
        false => (disk.image().power_failure(None, random), End::PowerFailure),
    };
    model.ended(end);
    recover_and_judge(worker, image, model, 0, random, tally)
        .map_err(|why| at(format!("{end:?} after the errors, {why}")))
}

fn faults_at(at_call: usize, allocates: bool) -> Vec<Fault> {
    let fault = |failure, persistent| Fault { at_call, failure, persistent };
    let mut faults = vec![fault(Failure::Device, false)];
    if allocates {
        faults.push(fault(Failure::Full, false));
        faults.push(fault(Failure::Full, true));
        faults.push(fault(Failure::Short, false));
        faults.push(fault(Failure::Short, true));
    }
    faults
}

/// Runs a workload with an error at each of its calls in turn. The seed decides how each run ends.
pub(super) fn fail_every_call(
    worker: &Worker,
    workload: &Workload,
    seed: u64,
    tally: &mut Tally,
) -> Result<u64, String> {
    let (mut runner, _) = begin(worker, workload, 0)?;
    runner.run(workload.steps).map_err(|e| format!("workload {}: {e}", workload.name))?;
    let calls = runner.disk.calls();
    drop(runner);
    // A process has state of its own only for a permanent log.
    let mut steps = workload.earlier.iter().chain(workload.steps);
    let is_kept = steps.any(|step| matches!(step, Step::MakePermanent { .. }));
    let places: &[bool] = if is_kept { &[false, true] } else { &[false] };
    let mut runs = 0;
    for (at_call, allocates) in calls.into_iter().enumerate() {
        for fault in faults_at(at_call, allocates) {
            for elsewhere in places {
                let mut random = Random::of(&[seed, at_call as u64, fault.failure as u64]);
                runs += 1;
                run_with(worker, workload, fault, *elsewhere, &mut random, tally).map_err(
                    |why| {
                        let place = if *elsewhere { ", another process continues" } else { "" };
                        format!("workload {} with {fault:?}{place}: {why}", workload.name)
                    },
                )?;
            }
        }
    }
    Ok(runs)
}

#[test]
fn an_error_at_any_call_is_typed_and_loses_nothing() {
    let failed: Vec<String> = std::thread::scope(|scope| {
        let run = |own: usize| {
            let worker = Worker::new();
            let (mut tally, mut runs, mut failed) = (Tally::default(), 0, Vec::new());
            for workload in WORKLOADS.iter().skip(own).step_by(super::threads()) {
                match fail_every_call(&worker, workload, 0, &mut tally) {
                    Ok(more) => runs += more,
                    Err(why) => failed.push(why),
                }
            }
            println!("{runs} runs with an error, {} crash points after them", tally.crash_points);
            failed
        };
        let handles: Vec<_> =
            (0..super::threads()).map(|own| scope.spawn(move || run(own))).collect();
        handles.into_iter().flat_map(|handle| handle.join().unwrap()).collect()
    });
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
