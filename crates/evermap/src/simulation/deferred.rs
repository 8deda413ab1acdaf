//! Large blocks on a disk that is full after a power failure: the log can still be applied.
//!
//! A large block takes no disk space until a commit contains pages of it. A record may therefore
//! refer to a hole. Recovery can apply the record only because the space was reserved and flushed
//! before.

use super::disk::Trace;
use super::explore::{Tally, run_steps};
use super::image::{Image, Operation};
use super::model::{End, Model};
use super::random::Random;
use super::runner::{Choice, Runner, Step, fresh_image};
use super::state::Edit;
use super::subject::{OBJECT, Worker};
use super::versions::{Keep, Medium};
use super::workload::{Recorded, WORKLOADS, Workload, follow, record};
use crate::storage::{OpenMode, Storage};

use Step::*;

const WIDE: Step = Change(Edit::Lines { blocks: 6, lines: 2 });

/// Programs that continue with the object after a kill.
const AFTER_A_KILL: &[&[Step]] =
    &[&[OpenWith(Choice::Deferred), WIDE, Commit, WIDE, Commit], &[Open, WIDE, Commit, Checkpoint]];

fn with_large_blocks() -> impl Iterator<Item = &'static Workload> {
    WORKLOADS.iter().filter(|workload| workload.name.contains("large_blocks"))
}

/// Opens the object on a disk without free blocks, and judges the state.
fn open_full(worker: &Worker, image: Image, mut model: Model) -> Result<(), String> {
    if !model.has_object() {
        return Ok(());
    }
    let mut runner = Runner::new(worker, image, 1);
    runner.disk.fill();
    let ran = runner.run(&[Open, Close, Read]);
    let trace = runner.disk.trace();
    ran.map_err(|error| format!("on a full disk: {error}; {model}"))?;
    follow(&mut model, &trace.operations)
}

/// Fails the power at every operation, and opens the object on a full disk each time.
fn fail_power_everywhere(
    worker: &Worker,
    start: Image,
    operations: &[Operation],
    mut model: Model,
    keeps: &[Keep],
    tally: &mut Tally,
) -> Result<(), String> {
    let mut before = start;
    for (crash_point, next) in operations.iter().enumerate() {
        for &keep in keeps {
            if !next.matters() {
                continue;
            }
            tally.crash_points += 1;
            let found = before.power_failure(Some(keep), &mut Random::of(&[crash_point as u64, 5]));
            let mut model = model.clone();
            model.ended(End::PowerFailure);
            open_full(worker, found, model)
                .map_err(|why| format!("power failure ({keep:?}) at {crash_point}: {why}"))?;
        }
        before.apply(next);
        follow(&mut model, std::slice::from_ref(next))?;
    }
    Ok(())
}

/// Fails the power at every operation of workloads with large blocks. Also kills them at every
/// operation, runs a follow-up program, and fails the power in that.
pub(super) fn explore_full_disks(worker: &Worker, tally: &mut Tally) -> Result<(), String> {
    for workload in with_large_blocks() {
        let context = |why: String| format!("workload {}: {why}", workload.name);
        let Recorded { start, operations } = record(worker, workload)?;
        let keeps = [Keep::Nothing, Keep::Everything, Keep::Random];
        fail_power_everywhere(worker, start.clone(), &operations, Model::default(), &keeps, tally)
            .map_err(context)?;
        // A kill keeps the page cache. The power failure after it loses everything that was not
        // flushed.
        let keeps = [Keep::Nothing];
        let (mut before, mut model) = (start, Model::default());
        for (killed, next) in operations.iter().enumerate() {
            for steps in AFTER_A_KILL {
                if !next.matters() || !model.has_object() {
                    continue;
                }
                let context = |why| context(format!("killed at {killed}, then {steps:?}: {why}"));
                let (ran, trace) = run_steps(worker, before.clone(), killed as u64, steps);
                ran.map_err(context)?;
                let Trace { start, operations } = trace;
                fail_power_everywhere(worker, start, &operations, model.clone(), &keeps, tally)
                    .map_err(context)?;
            }
            before.apply(next);
            follow(&mut model, std::slice::from_ref(next))?;
        }
    }
    Ok(())
}

#[test]
fn a_log_with_large_blocks_is_applied_on_a_full_disk_after_any_power_failure() {
    let (worker, mut tally) = (Worker::new(), Tally::default());
    explore_full_disks(&worker, &mut tally).unwrap();
    println!("{} crash points", tally.crash_points);
    assert!(tally.crash_points > 5_000, "only {} crash points", tally.crash_points);
}

/// Returns the object's disk space after its first commit, with one written line in a block of 192
/// KiB.
fn space_of(open: Step) -> u64 {
    let worker = Worker::new();
    let mut runner = Runner::new(&worker, fresh_image(Medium::DISK), 1);
    let large = Change(Edit::Sparse { blocks: 1, bytes: 192 * 1024 });
    runner.run(&[Make { room: 64 * 1024 }, open, large, Commit]).unwrap();
    let object = runner.disk.open(OBJECT.as_ref(), OpenMode::Read).unwrap();
    object.disk_bytes().unwrap()
}

#[test]
fn a_simulated_large_block_takes_space_in_steps() {
    let (whole, steps) = (space_of(Open), space_of(OpenWith(Choice::Deferred)));
    assert!(steps + 128 * 1024 <= whole, "{steps} bytes in steps, {whole} at once");
}
