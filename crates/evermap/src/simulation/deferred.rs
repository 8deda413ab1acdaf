//! Large blocks on a disk that is full after a power cut: the log can be applied all the same.
//!
//! A large block takes no disk space before a commit has pages of it. So a record may lead into a hole, and only the
//! space that was reserved and flushed before makes it one that recovery can apply.

use super::disk::Trace;
use super::explore::{Tally, go_on};
use super::history::{HISTORIES, History, Recorded, follow, record};
use super::image::{Image, Operation};
use super::model::{End, Model};
use super::platter::{Keep, Medium};
use super::random::Random;
use super::runner::{Choice, Runner, Step, fresh_image};
use super::state::Edit;
use super::subject::{OBJECT, Worker};
use crate::storage::{OpenMode, Storage};

use Step::*;

const WIDE: Step = Change(Edit::Lines { blocks: 6, lines: 2 });

/// Programs that find the object after a kill.
const AFTER_A_KILL: &[&[Step]] =
    &[&[OpenWith(Choice::Deferred), WIDE, Commit, WIDE, Commit], &[Open, WIDE, Commit, Checkpoint]];

fn with_large_blocks() -> impl Iterator<Item = &'static History> {
    HISTORIES.iter().filter(|history| history.name.contains("large_blocks"))
}

/// Opens the object on a disk without one free block, and judges the state that it finds.
fn open_full(worker: &Worker, image: Image, mut model: Model) -> Result<(), String> {
    if !model.has_object() {
        return Ok(());
    }
    let mut runner = Runner::new(worker, image, 1);
    runner.disk.fill();
    let ran = runner.run(&[Open, Close, Read]);
    let trace = runner.disk.trace();
    ran.map_err(|trouble| format!("on a full disk: {trouble}; {model}"))?;
    follow(&mut model, &trace.operations)
}

/// Cuts the power at every operation, and opens the object on a full disk each time.
fn cut_everywhere(
    worker: &Worker,
    start: Image,
    operations: &[Operation],
    mut model: Model,
    keeps: &[Keep],
    tally: &mut Tally,
) -> Result<(), String> {
    let mut before = start;
    for (cut, next) in operations.iter().enumerate() {
        for &keep in keeps {
            if !next.matters() {
                continue;
            }
            tally.cuts += 1;
            let found = before.power_cut(Some(keep), &mut Random::of(&[cut as u64, 5]));
            let mut model = model.clone();
            model.ended(End::PowerCut);
            open_full(worker, found, model)
                .map_err(|why| format!("power cut ({keep:?}) at {cut}: {why}"))?;
        }
        before.happen(next);
        follow(&mut model, std::slice::from_ref(next))?;
    }
    Ok(())
}

/// Cuts histories with large blocks at every operation; kills them there, lets a program go on, and cuts that.
pub(super) fn explore_full_disks(worker: &Worker, tally: &mut Tally) -> Result<(), String> {
    for history in with_large_blocks() {
        let story = |why: String| format!("history {}: {why}", history.name);
        let Recorded { start, operations } = record(worker, history)?;
        let keeps = [Keep::Nothing, Keep::Everything, Keep::Random];
        cut_everywhere(worker, start.clone(), &operations, Model::default(), &keeps, tally)
            .map_err(story)?;
        // A kill leaves the page cache. What no flush has seen is lost by the cut after it.
        let keeps = [Keep::Nothing];
        let (mut before, mut model) = (start, Model::default());
        for (killed, next) in operations.iter().enumerate() {
            for steps in AFTER_A_KILL {
                if !next.matters() || !model.has_object() {
                    continue;
                }
                let story = |why| story(format!("killed at {killed}, then {steps:?}: {why}"));
                let (ran, trace) = go_on(worker, before.clone(), killed as u64, steps);
                ran.map_err(story)?;
                let Trace { start, operations } = trace;
                cut_everywhere(worker, start, &operations, model.clone(), &keeps, tally)
                    .map_err(story)?;
            }
            before.happen(next);
            follow(&mut model, std::slice::from_ref(next))?;
        }
    }
    Ok(())
}

#[test]
fn what_a_log_has_of_large_blocks_is_applied_on_a_full_disk_after_any_cut() {
    let (worker, mut tally) = (Worker::new(), Tally::default());
    explore_full_disks(&worker, &mut tally).unwrap();
    println!("{} cuts", tally.cuts);
    assert!(tally.cuts > 5_000, "only {} cuts", tally.cuts);
}

/// Disk space of the object after its first commit with a block of 192 KiB that has one line.
fn space_of(open: Step) -> u64 {
    let worker = Worker::new();
    let mut runner = Runner::new(&worker, fresh_image(Medium::DISK), 1);
    let large = Change(Edit::Sparse { blocks: 1, bytes: 192 * 1024 });
    runner.run(&[Make { room: 64 * 1024 }, open, large, Commit]).unwrap();
    let object = runner.disk.open(OBJECT.as_ref(), OpenMode::Read).unwrap();
    object.disk_bytes().unwrap()
}

#[test]
fn a_simulated_large_block_takes_the_space_of_its_steps() {
    let (whole, steps) = (space_of(Open), space_of(OpenWith(Choice::Deferred)));
    assert!(steps + 128 * 1024 <= whole, "{steps} bytes in steps, {whole} at once");
}
