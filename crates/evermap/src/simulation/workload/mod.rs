//! Named programs that are crashed at every operation.
//!
//! The list is split by subject into `sessions` and `shared`. Seeds depend on the order and the
//! names, so a change of either explores other crash points.

use super::image::{Image, Operation};
use super::model::Model;
use super::runner::{Choice, Runner, Step, fresh_image};
use super::state::Edit;
use super::subject::Worker;
use super::versions::Medium;
use crate::mutate::{Mutant, without};

mod sessions;
mod shared;

use Step::*;

/// A program, and the disk it runs on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workload {
    pub(super) name: &'static str,
    pub(super) medium: Medium,
    /// Steps of an earlier build, which writes log format 1. They are not crashed.
    pub(super) earlier: &'static [Step],
    pub(super) steps: &'static [Step],
}

const FEW: Step = Change(Edit::Lines { blocks: 2, lines: 2 });
const SAME: Step = Change(Edit::SameLine);
const WHOLE: Step = Change(Edit::Whole { blocks: 3 });
const ALL: Step = Change(Edit::Everything);
const LOSE: Step = Change(Edit::Lose { blocks: 2 });
const KEEP: Step = OpenWith(Choice::KeepLog);
const DEFER: Step = OpenWith(Choice::Deferred);
const LARGE: Step = Change(Edit::Sparse { blocks: 1, bytes: 192 * 1024 });
const WIDE: Step = Change(Edit::Lines { blocks: 6, lines: 2 });
const MAKE: Step = Make { room: 64 * 1024 };

const fn gain(blocks: usize, bytes: usize) -> Step {
    Change(Edit::Gain { blocks, bytes })
}

/// All workloads. Each name says what the workload exercises.
pub(super) const WORKLOADS: &[Workload] = &{
    const SESSIONS: usize = sessions::WORKLOADS.len();
    let mut all = [sessions::WORKLOADS[0]; SESSIONS + shared::WORKLOADS.len()];
    let mut index = 0;
    while index < all.len() {
        all[index] = match index < SESSIONS {
            true => sessions::WORKLOADS[index],
            false => shared::WORKLOADS[index - SESSIONS],
        };
        index += 1;
    }
    all
};

const fn disk(name: &'static str, steps: &'static [Step]) -> Workload {
    Workload { name, medium: Medium::DISK, earlier: &[], steps }
}

const fn memory(name: &'static str, steps: &'static [Step]) -> Workload {
    Workload { name, medium: Medium::MEMORY, earlier: &[], steps }
}

const fn upgraded(
    name: &'static str,
    earlier: &'static [Step],
    steps: &'static [Step],
) -> Workload {
    Workload { name, medium: Medium::DISK, earlier, steps }
}

/// A recorded run of a workload.
pub(super) struct Recorded {
    pub(super) start: Image,
    pub(super) operations: Vec<Operation>,
}

/// Prepares the program before its first step. Also returns the events of the earlier build's
/// steps.
pub(super) fn begin<'w>(
    worker: &'w Worker,
    workload: &Workload,
    seed: u64,
) -> Result<(Runner<'w>, Vec<Operation>), String> {
    let mut runner = Runner::new(worker, fresh_image(workload.medium), seed);
    if workload.earlier.is_empty() {
        return Ok((runner, Vec::new()));
    }
    without(&[Mutant::EarlierFormat], || runner.run(workload.earlier))
        .map_err(|why| format!("workload {}, earlier: {why}", workload.name))?;
    let marks = runner.disk.trace().operations.into_iter();
    let marks = marks.filter(|operation| matches!(operation, Operation::Mark(_))).collect();
    Ok((runner.into_another_process(), marks))
}

/// Runs a workload to its end and judges its observations.
pub(super) fn record(worker: &Worker, workload: &Workload) -> Result<Recorded, String> {
    let seed = workload.name.bytes().fold(0u64, |h, b| h.wrapping_mul(31) + u64::from(b));
    let (mut runner, mut operations) = begin(worker, workload, seed)?;
    let ran = runner.run(workload.steps);
    let trace = runner.disk.trace();
    drop(runner);
    ran.map_err(|why| format!("workload {}: {why}", workload.name))?;
    operations.extend(trace.operations);
    follow(&mut Model::default(), &operations)
        .map_err(|why| format!("workload {}: {why}", workload.name))?;
    Ok(Recorded { start: trace.start, operations })
}

/// Judges the recorded observations of a program.
pub(super) fn follow(model: &mut Model, operations: &[Operation]) -> Result<(), String> {
    operations.iter().try_for_each(|operation| match operation {
        Operation::Mark(mark) => model.follow(*mark),
        _ => Ok(()),
    })
}
