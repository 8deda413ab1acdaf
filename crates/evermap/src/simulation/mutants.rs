//! The tests are tested: without any one of its safeguards the engine must fail.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::deferred::explore_full_disks;
use super::explore::{Tally, explore_history, explore_twice};
use super::faults::fail_every_call;
use super::history::HISTORIES;
use super::store::explore_stores;
use super::subject::Worker;
use crate::mutate::{Mutant, take_away};

/// Safeguards of the commit engine: cuts catch their absence.
const OF_CUTS: &[Mutant] = &[
    Mutant::RecordNotFlushed,
    Mutant::ObjectNotFlushedBeforeReset,
    Mutant::ObjectNotFlushedInRecovery,
    Mutant::ResetNotFlushed,
    Mutant::OneHeaderSlot,
    Mutant::RecordChecksumIgnored,
    Mutant::HeaderChecksumIgnored,
    Mutant::GenerationIgnored,
    Mutant::LogTrustedUnflushed,
    Mutant::PageZeroFirst,
    Mutant::ApplyBeforeRecord,
    Mutant::LogRequiredNotFlushed,
    Mutant::LogAnnouncedLate,
    Mutant::LogRequiredClearedLate,
    Mutant::LogRequiredClearedUnflushed,
    Mutant::NewLogNotFlushed,
    Mutant::LogDirectoryNotFlushed,
    Mutant::FreshNotFlushed,
    Mutant::CloseBeforeFlush,
    Mutant::DeadGrowthKept,
    Mutant::CopyNotFlushed,
    Mutant::ReplacementNotFlushed,
    Mutant::TrimBeforeCommit,
    Mutant::HolesBeforeCommit,
    Mutant::CutUnderTheLog,
    Mutant::RecordBehindTheEnd,
    Mutant::ProgressOfAnotherBootTrusted,
    Mutant::DurableClaimedEarly,
    Mutant::OldCodeKept,
];

/// Safeguards against what a kill left in the page cache: a power cut after the next program
/// catches their absence.
const OF_SECOND_CUTS: &[Mutant] = &[
    Mutant::LogRequiredTrustedUnflushed,
    Mutant::NameTrustedUnflushed,
    Mutant::HeaderTrustedUnflushed,
    Mutant::NewLogTrustedUnflushed,
];

/// Safeguards of which each stands in for the other: only the absence of both is caught. A record
/// of an earlier generation of the log is told by its salt and by its number; one of the same
/// generation that a crash had cut off, by its number and by the checksum of the record before. A hole that a
/// power cut undid does no harm where its pages are logged whole when they are used again.
const OF_CUTS_TOGETHER: &[&[Mutant]] = &[
    &[Mutant::SaltIgnored, Mutant::SequenceIgnored],
    &[Mutant::SaltIgnored, Mutant::PreviousIgnored, Mutant::SequenceIgnored],
    &[Mutant::HolesNotFlushed, Mutant::UsedHolesUnknown],
];

/// Safeguards that nothing can miss, and why they stand all the same.
const KEPT_FOR_A_REASON: &[(Mutant, &str)] = &[
    (
        Mutant::LogGrowthNotFlushed,
        "a durable write flushes the length it needs; flushing the zeros first keeps that off later commits",
    ),
    (
        Mutant::StaleLogNotDisowned,
        "what a kill at a close leaves is gone on with; a log that is not comes from elsewhere",
    ),
];

/// Safeguards of a store's names.
const OF_STORES: &[Mutant] = &[
    Mutant::NamesBeforeFiles,
    Mutant::BuildingNotFlushed,
    Mutant::RemovalBeforeCommit,
    Mutant::CatalogNamedUnflushed,
    Mutant::NewStoreTrustedUnflushed,
];

/// Safeguards of large blocks: a disk that is full after a cut catches their absence.
const OF_FULL_DISKS: &[Mutant] = &[
    Mutant::ChangesNotReserved,
    Mutant::ReservedNotFlushed,
    Mutant::DeadReservationTrusted,
    Mutant::DeferredIsNoHole,
];

/// Safeguards whose absence errors catch.
const OF_FAULTS: &[Mutant] = &[Mutant::PoisonForgotten, Mutant::AppliedElsewhereTrusted];

/// Seeds that a mutant gets at most.
const SEEDS: u64 = 5;

/// How a mutant was caught, and after how many cuts.
fn catch_by_cuts(worker: &Worker) -> (Option<String>, u64) {
    let mut tally = Tally::default();
    for seed in 0..SEEDS {
        for index in 0..HISTORIES.len() {
            let caught = explore_history(worker, index, seed..seed + 1, || true, &mut tally);
            if let Err(failed) = caught {
                return (Some(failed.case.to_string()), tally.cuts);
            }
        }
    }
    (None, tally.cuts)
}

fn catch_by_second_cuts(worker: &Worker) -> (Option<String>, u64) {
    let mut tally = Tally::default();
    for index in super::cut_twice() {
        if let Err(failed) = explore_twice(worker, index, || true, &mut tally) {
            let line = failed.why.lines().next().unwrap_or_default().to_string();
            return (Some(line), tally.cuts);
        }
    }
    (None, tally.cuts)
}

fn catch_by_faults(worker: &Worker) -> (Option<String>, u64) {
    let mut tally = Tally::default();
    for seed in 0..SEEDS {
        for history in HISTORIES {
            if let Err(why) = fail_every_call(worker, history, seed, &mut tally) {
                return (Some(why.lines().next().unwrap_or_default().to_string()), tally.cuts);
            }
        }
    }
    (None, tally.cuts)
}

fn catch_by_stores(_: &Worker) -> (Option<String>, u64) {
    let mut tally = Tally::default();
    let caught = explore_stores(0..SEEDS, &mut tally).err();
    (caught.map(|why| why.lines().next().unwrap_or_default().to_string()), tally.cuts)
}

fn catch_by_full_disks(worker: &Worker) -> (Option<String>, u64) {
    let mut tally = Tally::default();
    let caught = explore_full_disks(worker, &mut tally).err();
    (caught.map(|why| why.lines().next().unwrap_or_default().to_string()), tally.cuts)
}

/// How a mutant is caught.
type Catch = fn(&Worker) -> (Option<String>, u64);

#[test]
fn every_safeguard_that_is_taken_away_is_missed_by_a_test() {
    let alone = |mutants: &'static [Mutant], catch: Catch| {
        mutants.iter().map(move |mutant| (std::slice::from_ref(mutant), catch))
    };
    let all: Vec<(&'static [Mutant], Catch)> = alone(OF_CUTS, catch_by_cuts)
        .chain(OF_CUTS_TOGETHER.iter().map(|mutants| (*mutants, catch_by_cuts as Catch)))
        .chain(alone(OF_SECOND_CUTS, catch_by_second_cuts))
        .chain(alone(OF_STORES, catch_by_stores))
        .chain(alone(OF_FAULTS, catch_by_faults))
        .chain(alone(OF_FULL_DISKS, catch_by_full_disks))
        .collect();
    let only = std::env::var("EVERMAP_MUTANT").ok();
    let wanted = |name: &str| only.as_ref().is_none_or(|only| name.contains(only));
    for (mutant, why) in KEPT_FOR_A_REASON {
        println!("{mutant:?} cannot be caught: {why}");
    }
    let next = AtomicUsize::new(0);
    let run = || {
        let worker = Worker::new();
        let mut missed = Vec::new();
        while let Some((mutants, catch)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let name = format!("{mutants:?}");
            if !wanted(&name) {
                continue;
            }
            take_away(mutants);
            let (caught, cuts) = catch(&worker);
            take_away(&[]);
            match caught {
                Some(how) => println!("{name:32} caught after {cuts:6} cuts by {how}"),
                None => {
                    println!("{name:32} not caught in {cuts} cuts");
                    missed.push(name);
                }
            }
        }
        missed
    };
    let missed: Vec<String> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..super::threads()).map(|_| scope.spawn(run)).collect();
        handles.into_iter().flat_map(|handle| handle.join().unwrap()).collect()
    });
    assert!(missed.is_empty(), "nothing misses these safeguards: {missed:?}");
}
