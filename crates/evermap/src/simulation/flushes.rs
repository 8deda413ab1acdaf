//! Counts the flushes of each operation, as documented in `docs/durability.md`.

use super::image::Operation;
use super::runner::{Choice, Runner, Step, fresh_image};
use super::state::Edit;
use super::subject::Worker;
use super::versions::Medium;

/// Runs the steps and returns the number of flushes of the last one: syncs of files and
/// directories, and durable writes.
fn flushes_of_the_last(steps: &[Step]) -> usize {
    let worker = Worker::new();
    let mut runner = Runner::new(&worker, fresh_image(Medium::DISK), 1);
    let (last, before) = steps.split_last().unwrap();
    runner.run(before).unwrap();
    let done = runner.disk.trace().operations.len();
    runner.step(*last).unwrap();
    let is_flush = |operation: &&Operation| match operation {
        Operation::Write { durable, .. } => *durable,
        Operation::Sync { .. } | Operation::SyncDirectory(_) => true,
        _ => false,
    };
    runner.disk.trace().operations[done..].iter().filter(is_flush).count()
}

#[test]
fn each_operation_costs_the_documented_number_of_flushes() {
    use Step::*;
    const MAKE: Step = Make { room: 64 * 1024 };
    const KEEP: Step = OpenWith(Choice::KeepLog);
    const FEW: Step = Change(Edit::Lines { blocks: 2, lines: 2 });
    const GAIN: Step = Change(Edit::Gain { blocks: 6, bytes: 32 * 1024 });
    const LOSE: Step = Change(Edit::Lose { blocks: 8 });
    const DEFER: Step = OpenWith(Choice::Deferred);
    const LARGE: Step = Change(Edit::Sparse { blocks: 1, bytes: 192 * 1024 });
    const ALL: Step = Change(Edit::Everything);
    const ONE: Step = Change(Edit::SameLine);
    const MANY: Step = Change(Edit::Lines { blocks: 8, lines: 2 });
    let cases: &[(&str, usize, &[Step])] = &[
        ("creation, without the catalog", 2, &[MAKE]),
        ("a first commit that creates a log", 4, &[MAKE, Open, FEW, Commit]),
        ("the same after growth", 4, &[MAKE, Open, GAIN, Commit]),
        ("a further commit", 1, &[MAKE, Open, FEW, Commit, FEW, Commit]),
        ("a further commit after growth", 2, &[MAKE, Open, FEW, Commit, GAIN, Commit]),
        ("close", 2, &[MAKE, Open, FEW, Commit, Close]),
        ("close after a checkpoint", 1, &[MAKE, Open, FEW, Commit, Checkpoint, Close]),
        ("close of a session without a commit", 0, &[MAKE, Open, Close]),
        ("a first commit with a kept log", 2, &[MAKE, KEEP, FEW, Commit, Close, KEEP, FEW, Commit]),
        ("the same after growth", 2, &[MAKE, KEEP, FEW, Commit, Close, KEEP, GAIN, Commit]),
        (
            "a first commit with a kept log that was emptied",
            3,
            &[MAKE, KEEP, FEW, Commit, Checkpoint, Close, KEEP, FEW, Commit],
        ),
        (
            "a further commit to allocated parts of an object with holes",
            1,
            &[MAKE, DEFER, LARGE, Commit, ALL, Commit, Close, DEFER, ONE, Commit, MANY, Commit],
        ),
        (
            "the same to unallocated parts",
            2,
            &[MAKE, DEFER, LARGE, Commit, Close, DEFER, ONE, Commit, MANY, Commit],
        ),
        ("truncation", 1, &[MAKE, Open, GAIN, Commit, LOSE, Commit, Release]),
        (
            "truncation with pages of the removed part in the log",
            3,
            &[MAKE, Open, GAIN, Commit, Change(Edit::Everything), Commit, LOSE, Commit, Release],
        ),
    ];
    for (what, flushes, steps) in cases {
        assert_eq!(flushes_of_the_last(steps), *flushes, "{what}");
    }
}
