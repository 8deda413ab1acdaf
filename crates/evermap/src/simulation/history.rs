//! Named programs whose every step is cut: the crash points of the engine.

use super::image::{Image, Operation};
use super::model::Model;
use super::platter::Medium;
use super::runner::{Choice, Runner, Step, fresh_image};
use super::state::Edit;
use super::subject::Worker;
use crate::mutate::{Mutant, without};

use Step::*;

/// A program, and the disk it runs on.
#[derive(Clone, Copy, Debug)]
pub(super) struct History {
    pub(super) name: &'static str,
    pub(super) medium: Medium,
    /// Steps of a program of an earlier build, which wrote log format 1. They are not cut.
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

/// All of them. What each is for stands in its name.
pub(super) const HISTORIES: &[History] = &[
    disk("creation", &[MAKE, Read]),
    disk("first_commit_sets_log_required", &[MAKE, Open, FEW, Commit, Close]),
    disk(
        "one_commit_after_the_other",
        &[MAKE, Open, FEW, Commit, FEW, Commit, FEW, Commit, FEW, Commit],
    ),
    disk(
        "records_of_many_sectors",
        &[MAKE, Open, gain(6, 4096), Commit, WHOLE, Commit, ALL, Commit, FEW, Commit],
    ),
    disk(
        "same_pages_again_before_a_checkpoint",
        &[MAKE, Open, SAME, Commit, SAME, Commit, SAME, Commit, SAME, Commit, Close, Read],
    ),
    disk(
        "object_grows_in_place",
        &[
            Make { room: 3 * 64 * 1024 },
            Open,
            gain(8, 16 * 1024),
            Commit,
            FEW,
            Commit,
            gain(2, 4096),
            Commit,
            Close,
        ],
    ),
    disk(
        "object_gains_a_region",
        &[
            MAKE,
            Open,
            gain(8, 16 * 1024),
            FEW,
            Commit,
            FEW,
            Commit,
            gain(4, 32 * 1024),
            Commit,
            Close,
            Read,
        ],
    ),
    disk(
        "log_grows",
        &[MAKE, Open, gain(9, 4096), Commit, ALL, Commit, ALL, Commit, ALL, Commit, Close],
    ),
    disk(
        "record_larger_than_the_log",
        &[MAKE, Open, gain(6, 16 * 1024), Commit, ALL, Commit, FEW, Commit, Close],
    ),
    disk(
        "checkpoints_between",
        &[
            MAKE, Open, FEW, Commit, WHOLE, Commit, Checkpoint, FEW, Commit, Checkpoint, SAME,
            Commit, Checkpoint, FEW, Commit,
        ],
    ),
    disk(
        "short_log_over_a_long_one",
        &[
            MAKE, Open, SAME, Commit, SAME, Commit, SAME, Commit, SAME, Commit, Checkpoint, SAME,
            Commit, Abandon, Read, Open, SAME, Commit,
        ],
    ),
    disk(
        "sessions_one_after_the_other",
        &[
            MAKE, Open, FEW, Commit, Close, Open, WHOLE, Commit, Close, Read, Open, Close, Open,
            FEW, Commit, FEW, Commit, Close,
        ],
    ),
    disk(
        "recovery_after_sessions_that_were_not_closed",
        &[
            MAKE, Open, FEW, Commit, FEW, Commit, Abandon, Open, FEW, Commit, Abandon, Read, Open,
            SAME, Commit, Abandon, Open, Close,
        ],
    ),
    disk(
        "rollback_and_nothing_in_between",
        &[
            MAKE,
            Open,
            FEW,
            Commit,
            WHOLE,
            gain(6, 16 * 1024),
            Rollback,
            CommitNothing,
            FEW,
            Commit,
            LOSE,
            Rollback,
            SAME,
            Commit,
            CommitNothing,
            Close,
        ],
    ),
    disk(
        "blocks_come_and_go",
        &[
            MAKE,
            Open,
            gain(10, 2048),
            Commit,
            LOSE,
            Commit,
            LOSE,
            gain(4, 1024),
            Commit,
            LOSE,
            Commit,
            Close,
        ],
    ),
    disk(
        "close_gives_back_what_growing_left",
        &[
            Make { room: 6 * 64 * 1024 },
            Open,
            gain(5, 60 * 1024),
            Commit,
            Change(Edit::Lose { blocks: 4 }),
            Commit,
            Close,
            Read,
            Open,
            gain(3, 4096),
            Commit,
            Close,
        ],
    ),
    disk(
        "free_chunks_become_holes_and_are_used_again",
        &[
            Make { room: 5 * 64 * 1024 },
            Open,
            gain(4, 40 * 1024),
            Commit,
            LOSE,
            Commit,
            Shrink,
            Change(Edit::Sparse { blocks: 1, bytes: 40 * 1024 }),
            Commit,
            LOSE,
            Commit,
            Shrink,
            FEW,
            Commit,
            Close,
            Read,
        ],
    ),
    disk(
        "a_short_log_is_emptied_again_and_again",
        &[
            MAKE,
            OpenWith(Choice::ShortLog),
            FEW,
            Commit,
            WHOLE,
            Commit,
            SAME,
            Commit,
            FEW,
            Commit,
            gain(2, 32 * 1024),
            Commit,
            FEW,
            Commit,
            Close,
        ],
    ),
    disk(
        "pages_are_given_back_after_each_commit",
        &[
            MAKE,
            OpenWith(Choice::Cold),
            FEW,
            Commit,
            SAME,
            Commit,
            WHOLE,
            Commit,
            FEW,
            Rollback,
            SAME,
            Commit,
            Close,
        ],
    ),
    disk(
        "whole_pages_are_logged",
        &[MAKE, OpenWith(Choice::FullPages), FEW, Commit, SAME, Commit, SAME, Commit, Close, Read],
    ),
    disk(
        "interval_loses_the_last_commits_in_a_power_cut_only",
        &[
            MAKE,
            OpenWith(Choice::Interval),
            FEW,
            Commit,
            SAME,
            Commit,
            Sync,
            SAME,
            Commit,
            gain(3, 32 * 1024),
            Commit,
            FEW,
            Commit,
            Checkpoint,
            FEW,
            Commit,
            SAME,
            Commit,
            Close,
            Read,
        ],
    ),
    disk(
        "close_keeps_what_was_synced_or_closed",
        &[
            MAKE,
            OpenWith(Choice::Close),
            FEW,
            Commit,
            SAME,
            Commit,
            Sync,
            SAME,
            Commit,
            gain(3, 32 * 1024),
            Commit,
            WHOLE,
            Rollback,
            FEW,
            Commit,
            Sync,
            FEW,
            Commit,
            Checkpoint,
            SAME,
            Commit,
            Close,
            Read,
        ],
    ),
    disk(
        "what_close_has_not_logged_yet_may_lie_behind_a_shorter_end",
        &[
            MAKE,
            OpenWith(Choice::Close),
            gain(5, 60 * 1024),
            Commit,
            ALL,
            Commit,
            Change(Edit::Lose { blocks: 6 }),
            Commit,
            Release,
            gain(1, 2048),
            Commit,
            Sync,
            gain(5, 60 * 1024),
            Commit,
            ALL,
            Commit,
            Change(Edit::Lose { blocks: 5 }),
            Commit,
            Close,
            Read,
        ],
    ),
    disk(
        "interval_applies_nothing_before_it_is_flushed",
        &[
            MAKE,
            OpenWith(Choice::IntervalCold),
            FEW,
            Commit,
            SAME,
            Commit,
            WHOLE,
            Commit,
            SAME,
            Commit,
            Abandon,
            Read,
        ],
    ),
    disk(
        "close_applies_nothing_before_it_is_logged",
        &[
            MAKE,
            OpenWith(Choice::CloseCold),
            FEW,
            Commit,
            SAME,
            Commit,
            WHOLE,
            Commit,
            SAME,
            Commit,
            Close,
            Read,
        ],
    ),
    disk(
        "commits_beside_readers",
        &[
            MAKE,
            NeighbourComes,
            Open,
            FEW,
            Commit,
            NeighbourLooks,
            NeighbourComes,
            SAME,
            Commit,
            NeighbourGoes,
            FEW,
            Commit,
            NeighbourGoes,
            SAME,
            Commit,
            Checkpoint,
            NeighbourComes,
            SAME,
            Commit,
            Close,
            NeighbourLooks,
            Open,
            SAME,
            Commit,
            NeighbourGoes,
            Close,
            Read,
        ],
    ),
    disk(
        "the_object_is_replaced_beside_readers",
        &[
            MAKE,
            NeighbourComes,
            OpenWith(Choice::ShortLog),
            FEW,
            Commit,
            WHOLE,
            Commit,
            NeighbourLooks,
            NeighbourComes,
            ALL,
            Commit,
            SAME,
            Commit,
            gain(2, 32 * 1024),
            Commit,
            NeighbourGoes,
            NeighbourGoes,
            FEW,
            Commit,
            Close,
            Read,
        ],
    ),
    disk(
        "recovery_beside_readers",
        &[
            MAKE,
            Open,
            FEW,
            Commit,
            SAME,
            Commit,
            Abandon,
            NeighbourComes,
            OpenWith(Choice::Interval),
            SAME,
            Commit,
            SAME,
            Commit,
            Sync,
            SAME,
            Commit,
            SAME,
            Commit,
            NeighbourLooks,
            Abandon,
            NeighbourGoes,
            Open,
            SAME,
            Commit,
        ],
    ),
    disk(
        "a_log_that_is_kept_for_good",
        &[
            MakePermanent { room: 64 * 1024 },
            Open,
            FEW,
            Commit,
            WHOLE,
            Commit,
            Abandon,
            Open,
            SAME,
            Commit,
            Checkpoint,
            SAME,
            Commit,
            Close,
            Read,
            Open,
            WHOLE,
            Commit,
            gain(2, 32 * 1024),
            Commit,
            Close,
        ],
    ),
    disk(
        "a_log_is_left_for_the_next_session",
        &[
            MAKE,
            KEEP,
            FEW,
            Commit,
            Close,
            KEEP,
            SAME,
            Commit,
            WHOLE,
            Commit,
            Close,
            KEEP,
            gain(3, 32 * 1024),
            Commit,
            SAME,
            Commit,
            Close,
            Read,
            KEEP,
            FEW,
            Commit,
            Checkpoint,
            Close,
            Read,
            KEEP,
            SAME,
            Commit,
            Close,
            KEEP,
            SAME,
            Commit,
            Abandon,
            KEEP,
            SAME,
            Commit,
            Close,
            Open,
            SAME,
            Commit,
            Close,
        ],
    ),
    disk(
        "a_log_is_left_beside_readers_and_at_an_interval",
        &[
            MAKE,
            KEEP,
            FEW,
            Commit,
            Close,
            NeighbourComes,
            OpenWith(Choice::IntervalKeepLog),
            SAME,
            Commit,
            NeighbourLooks,
            NeighbourComes,
            SAME,
            Commit,
            Close,
            NeighbourGoes,
            KEEP,
            SAME,
            Commit,
            NeighbourGoes,
            FEW,
            Commit,
            Close,
            OpenWith(Choice::IntervalKeepLog),
            SAME,
            Commit,
            gain(2, 32 * 1024),
            Commit,
            FEW,
            Commit,
            Close,
            Read,
        ],
    ),
    disk(
        "what_was_cut_off_grows_again",
        &[
            MAKE,
            KEEP,
            gain(6, 32 * 1024),
            Commit,
            Release,
            ALL,
            Commit,
            Change(Edit::Lose { blocks: 6 }),
            Commit,
            Release,
            gain(4, 32 * 1024),
            Commit,
            Change(Edit::Lose { blocks: 6 }),
            Commit,
            Release,
            gain(5, 32 * 1024),
            Commit,
            FEW,
            Commit,
            Close,
            Read,
            KEEP,
            Change(Edit::Lose { blocks: 5 }),
            Commit,
            Release,
            gain(3, 32 * 1024),
            Commit,
            Close,
            Read,
        ],
    ),
    disk(
        "what_was_logged_late_and_cut_off_grows_again",
        &[
            MAKE,
            KEEP,
            gain(6, 32 * 1024),
            Commit,
            Close,
            OpenWith(Choice::CloseKeepLog),
            ALL,
            Commit,
            Sync,
            Change(Edit::Lose { blocks: 8 }),
            Commit,
            Release,
            gain(4, 32 * 1024),
            Commit,
            Sync,
            Abandon,
            Read,
        ],
    ),
    disk(
        "large_blocks_take_space_where_they_are_stored_to",
        &[
            MAKE, DEFER, LARGE, Commit, WIDE, Commit, WIDE, Commit, Checkpoint, FEW, Commit,
            Abandon, DEFER, WIDE, Commit, LARGE, WIDE, Commit, Close, Read, Open, WIDE, Commit,
        ],
    ),
    disk(
        "large_blocks_come_and_go",
        &[
            MAKE,
            DEFER,
            LARGE,
            WIDE,
            Rollback,
            LARGE,
            Commit,
            WIDE,
            Commit,
            LARGE,
            gain(1, 32 * 1024),
            LARGE,
            WIDE,
            Commit,
            Change(Edit::Lose { blocks: 4 }),
            Commit,
            Shrink,
            LARGE,
            WIDE,
            Commit,
            Change(Edit::Lose { blocks: 2 }),
            Commit,
            Release,
            LARGE,
            Commit,
            Close,
            Read,
        ],
    ),
    disk(
        "close_logs_large_blocks_late",
        &[
            MAKE,
            OpenWith(Choice::DeferredClose),
            LARGE,
            WIDE,
            Commit,
            WIDE,
            Commit,
            Sync,
            WIDE,
            Commit,
            LARGE,
            Commit,
            Close,
            Read,
        ],
    ),
    disk("a_kept_log_is_used_twice", &[MAKE, KEEP, SAME, Commit, Close, KEEP, SAME, Commit, Close]),
    disk(
        "close_and_reopen_beside_a_reader",
        &[MAKE, NeighbourComes, Open, FEW, Commit, NeighbourGoes, Close, Open, SAME, Commit],
    ),
    disk(
        "replaced_beside_a_reader",
        &[MAKE, NeighbourComes, OpenWith(Choice::ShortLog), SAME, Commit, SAME, Commit],
    ),
    memory("memory_checkpoint", &[MAKE, Open, SAME, Commit, Checkpoint, SAME, Commit, Checkpoint]),
    disk(
        "foreign_log_beside_a_closed_object",
        &[MAKE, ForeignLog, Read, Open, FEW, Commit, Close, ForeignLog, Open, FEW, Commit],
    ),
    memory(
        "memory_commits_and_checkpoints",
        &[MAKE, Open, FEW, Commit, WHOLE, Commit, Checkpoint, SAME, Commit, SAME, Commit, Close],
    ),
    memory(
        "memory_is_emptied_again_and_again",
        // A header is torn rarely: between two words of one line of the processor's cache.
        &[
            MAKE, Open, SAME, Commit, Checkpoint, SAME, Commit, Checkpoint, SAME, Commit,
            Checkpoint, SAME, Commit, Checkpoint, SAME, Commit, Checkpoint, SAME, Commit,
            Checkpoint, SAME, Commit, Checkpoint, SAME, Commit, Checkpoint, SAME, Commit,
            Checkpoint, SAME, Commit, Checkpoint, SAME, Commit, Checkpoint, SAME, Commit,
            Checkpoint, SAME, Commit, Checkpoint, SAME, Commit, Checkpoint, SAME, Commit,
            Checkpoint, SAME, Commit, Checkpoint, SAME, Commit,
        ],
    ),
    memory(
        "memory_grows",
        &[MAKE, Open, gain(5, 16 * 1024), Commit, FEW, Commit, Abandon, Open, FEW, Commit],
    ),
    upgraded(
        "a_closed_object_of_an_earlier_build",
        &[MAKE, Open, FEW, Commit, Close],
        &[Read, Open, SAME, Commit, gain(2, 32 * 1024), Commit, Close, Read, Open, SAME, Commit],
    ),
    upgraded(
        "a_log_of_an_earlier_build_is_recovered",
        &[MAKE, Open, FEW, Commit, WHOLE, Commit, FEW, Commit, Abandon],
        &[Read, Open, SAME, Commit, FEW, Commit, Close, Read, Open, SAME, Commit],
    ),
    upgraded(
        "a_log_that_an_earlier_build_left_is_made_anew",
        &[MAKE, KEEP, FEW, Commit, Close, KEEP, SAME, Commit, Close],
        &[KEEP, SAME, Commit, FEW, Commit, Close, Read, KEEP, SAME, Commit],
    ),
    upgraded(
        "a_log_of_an_earlier_build_is_gone_on_with_beside_readers",
        &[MAKE, Open, FEW, Commit, SAME, Commit, Abandon],
        &[
            NeighbourComes,
            Open,
            SAME,
            Commit,
            WHOLE,
            Commit,
            NeighbourLooks,
            Abandon,
            Open,
            SAME,
            Commit,
            NeighbourGoes,
            FEW,
            Commit,
            Checkpoint,
            SAME,
            Commit,
            Close,
            Read,
        ],
    ),
    upgraded(
        "an_object_of_an_earlier_build_is_replaced_beside_readers",
        &[MAKE, Open, FEW, Commit, SAME, Commit, Abandon],
        &[
            NeighbourComes,
            OpenWith(Choice::ShortLog),
            SAME,
            Commit,
            SAME,
            Commit,
            NeighbourGoes,
            FEW,
            Commit,
            Close,
        ],
    ),
    upgraded(
        "a_log_of_an_earlier_build_is_kept_for_good",
        &[MakePermanent { room: 64 * 1024 }, Open, FEW, Commit, WHOLE, Commit, Abandon],
        &[Read, Open, SAME, Commit, Checkpoint, SAME, Commit, Close, Read, Open, WHOLE, Commit],
    ),
    upgraded(
        "an_empty_log_of_an_earlier_build_is_kept_for_good",
        &[MakePermanent { room: 64 * 1024 }],
        &[Read, Open, SAME, Commit, FEW, Commit, Abandon, Open, SAME, Commit],
    ),
    History {
        medium: Medium::MEMORY,
        ..upgraded(
            "memory_of_an_earlier_build",
            &[MAKE, Open, SAME, Commit, Checkpoint, SAME, Commit, Abandon],
            &[Open, SAME, Commit, Checkpoint, SAME, Commit, Checkpoint, SAME, Commit, Close],
        )
    },
    History {
        medium: Medium::MEMORY,
        ..upgraded(
            "memory_of_an_earlier_build_whose_log_is_kept_for_good",
            &[MakePermanent { room: 64 * 1024 }, Open, FEW, Commit, WHOLE, Commit, Abandon],
            &[Read, Open, SAME, Commit, Checkpoint, SAME, Commit, Checkpoint, FEW, Commit, Close],
        )
    },
];

const fn disk(name: &'static str, steps: &'static [Step]) -> History {
    History { name, medium: Medium::DISK, earlier: &[], steps }
}

const fn memory(name: &'static str, steps: &'static [Step]) -> History {
    History { name, medium: Medium::MEMORY, earlier: &[], steps }
}

const fn upgraded(name: &'static str, earlier: &'static [Step], steps: &'static [Step]) -> History {
    History { name, medium: Medium::DISK, earlier, steps }
}

/// A history that was run: what can be cut.
pub(super) struct Recorded {
    pub(super) start: Image,
    pub(super) operations: Vec<Operation>,
}

/// A program before its first step, and what the earlier one promised and saw.
pub(super) fn begin<'w>(
    worker: &'w Worker,
    history: &History,
    seed: u64,
) -> Result<(Runner<'w>, Vec<Operation>), String> {
    let mut runner = Runner::new(worker, fresh_image(history.medium), seed);
    if history.earlier.is_empty() {
        return Ok((runner, Vec::new()));
    }
    without(&[Mutant::EarlierFormat], || runner.run(history.earlier))
        .map_err(|why| format!("history {}, earlier: {why}", history.name))?;
    let marks = runner.disk.trace().operations.into_iter();
    let marks = marks.filter(|operation| matches!(operation, Operation::Mark(_))).collect();
    Ok((runner.moved_to_another_process(), marks))
}

/// Runs a history to its end. What it finds on the way is judged as well.
pub(super) fn record(worker: &Worker, history: &History) -> Result<Recorded, String> {
    let seed = history.name.bytes().fold(0u64, |h, b| h.wrapping_mul(31) + u64::from(b));
    let (mut runner, mut operations) = begin(worker, history, seed)?;
    let ran = runner.run(history.steps);
    let trace = runner.disk.trace();
    drop(runner);
    ran.map_err(|why| format!("history {}: {why}", history.name))?;
    operations.extend(trace.operations);
    follow(&mut Model::default(), &operations)
        .map_err(|why| format!("history {}: {why}", history.name))?;
    Ok(Recorded { start: trace.start, operations })
}

/// Judges what a program found.
pub(super) fn follow(model: &mut Model, operations: &[Operation]) -> Result<(), String> {
    operations.iter().try_for_each(|operation| match operation {
        Operation::Mark(mark) => model.follow(*mark),
        _ => Ok(()),
    })
}
