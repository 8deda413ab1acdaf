//! Tests the tests: with any one safeguard disabled, some test must fail.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::deferred::explore_full_disks;
use super::explore::{Tally, explore_twice, explore_workload};
use super::faults::fail_every_call;
use super::store::explore_stores;
use super::subject::Worker;
use super::workload::WORKLOADS;
use crate::mutate::{Mutant, disable};

/// Safeguards of the commit engine. Crash points detect their absence.
const CAUGHT_BY_CRASHES: &[Mutant] = &[
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
    Mutant::TruncatedUnderTheLog,
    Mutant::RecordPastTheEnd,
    Mutant::ProgressOfAnotherBootTrusted,
    Mutant::DurableClaimedEarly,
    Mutant::OldCodeKept,
];

/// Safeguards against data that a kill left only in the page cache. A power failure during the next
/// program detects their absence.
const CAUGHT_BY_SECOND_CRASHES: &[Mutant] = &[
    Mutant::LogRequiredTrustedUnflushed,
    Mutant::NameTrustedUnflushed,
    Mutant::HeaderTrustedUnflushed,
    Mutant::NewLogTrustedUnflushed,
];

/// Safeguards that back each other up: a test fails only if all of a group are disabled. A record
/// of an earlier generation is recognized by its salt and its number. A record of the same
/// generation that a crash cut off is recognized by its number and by the previous record's
/// checksum. A hole that a power failure undid is harmless if its pages are logged completely when
/// they are reused.
const CAUGHT_BY_CRASHES_TOGETHER: &[&[Mutant]] = &[
    &[Mutant::SaltIgnored, Mutant::SequenceIgnored],
    &[Mutant::SaltIgnored, Mutant::PreviousIgnored, Mutant::SequenceIgnored],
    &[Mutant::HolesNotFlushed, Mutant::UsedHolesUnknown],
];

/// Safeguards whose absence no test can detect, and the reason to keep them.
const KEPT_FOR_A_REASON: &[(Mutant, &str)] = &[
    (
        Mutant::LogGrowthNotFlushed,
        "a durable write also flushes the length; flushing the zeros first saves later commits that cost",
    ),
    (
        Mutant::StaleLogRemovedEarly,
        "a log left by a kill during close is continued; another log comes from outside the store",
    ),
];

/// Safeguards of a store's names.
const CAUGHT_BY_STORES: &[Mutant] = &[
    Mutant::NamesBeforeFiles,
    Mutant::BuildingNotFlushed,
    Mutant::RemovalBeforeCommit,
    Mutant::CatalogNamedUnflushed,
    Mutant::NewStoreTrustedUnflushed,
];

/// Safeguards of large blocks. A full disk after a crash detects their absence.
const CAUGHT_BY_FULL_DISKS: &[Mutant] = &[
    Mutant::ChangesNotReserved,
    Mutant::ReservedNotFlushed,
    Mutant::DeadReservationTrusted,
    Mutant::DeferredIsNoHole,
];

/// Safeguards whose absence injected errors detect.
const CAUGHT_BY_FAULTS: &[Mutant] = &[Mutant::PoisonForgotten, Mutant::AppliedElsewhereTrusted];

/// Maximum number of seeds per mutant.
const SEEDS: u64 = 5;

/// Returns how a mutant was caught, and the number of crash points explored.
fn catch_by_crashes(worker: &Worker) -> (Option<String>, u64) {
    let mut tally = Tally::default();
    for seed in 0..SEEDS {
        for index in 0..WORKLOADS.len() {
            let caught = explore_workload(worker, index, seed..seed + 1, || true, &mut tally);
            if let Err(failed) = caught {
                return (Some(failed.case.to_string()), tally.crash_points);
            }
        }
    }
    (None, tally.crash_points)
}

fn catch_by_second_crashes(worker: &Worker) -> (Option<String>, u64) {
    let mut tally = Tally::default();
    for index in super::short_workloads() {
        if let Err(failed) = explore_twice(worker, index, || true, &mut tally) {
            let line = failed.why.lines().next().unwrap_or_default().to_string();
            return (Some(line), tally.crash_points);
        }
    }
    (None, tally.crash_points)
}

fn catch_by_faults(worker: &Worker) -> (Option<String>, u64) {
    let mut tally = Tally::default();
    for seed in 0..SEEDS {
        for workload in WORKLOADS {
            if let Err(why) = fail_every_call(worker, workload, seed, &mut tally) {
                return (
                    Some(why.lines().next().unwrap_or_default().to_string()),
                    tally.crash_points,
                );
            }
        }
    }
    (None, tally.crash_points)
}

fn catch_by_stores(_: &Worker) -> (Option<String>, u64) {
    let mut tally = Tally::default();
    let caught = explore_stores(0..SEEDS, &mut tally).err();
    (caught.map(|why| why.lines().next().unwrap_or_default().to_string()), tally.crash_points)
}

fn catch_by_full_disks(worker: &Worker) -> (Option<String>, u64) {
    let mut tally = Tally::default();
    let caught = explore_full_disks(worker, &mut tally).err();
    (caught.map(|why| why.lines().next().unwrap_or_default().to_string()), tally.crash_points)
}

/// Function that tries to catch a mutant.
type Catch = fn(&Worker) -> (Option<String>, u64);

#[test]
fn every_safeguard_is_needed() {
    let alone = |mutants: &'static [Mutant], catch: Catch| {
        mutants.iter().map(move |mutant| (std::slice::from_ref(mutant), catch))
    };
    let all: Vec<(&'static [Mutant], Catch)> = alone(CAUGHT_BY_CRASHES, catch_by_crashes)
        .chain(
            CAUGHT_BY_CRASHES_TOGETHER.iter().map(|mutants| (*mutants, catch_by_crashes as Catch)),
        )
        .chain(alone(CAUGHT_BY_SECOND_CRASHES, catch_by_second_crashes))
        .chain(alone(CAUGHT_BY_STORES, catch_by_stores))
        .chain(alone(CAUGHT_BY_FAULTS, catch_by_faults))
        .chain(alone(CAUGHT_BY_FULL_DISKS, catch_by_full_disks))
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
            disable(mutants);
            let (caught, crash_points) = catch(&worker);
            disable(&[]);
            match caught {
                Some(how) => {
                    println!("{name:32} caught after {crash_points:6} crash points by {how}")
                }
                None => {
                    println!("{name:32} not caught in {crash_points} crash points");
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
    assert!(missed.is_empty(), "no test detects the absence of these safeguards: {missed:?}");
}
