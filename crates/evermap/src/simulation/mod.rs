//! Runs the engine on a simulated disk with power failures, kills, and errors at every call.
//!
//! A workload is a short program that creates, changes, commits and closes an object. It runs once
//! on a simulated disk, which records every call. From the record, the harness derives every disk
//! state that a crash at any call can leave. It opens the object on each state, a model of the
//! promises judges the result, and the recovery itself is crashed in turn.
//!
//! A failure prints one line that reproduces it.
#![allow(clippy::unwrap_used)]

mod blocks;
mod checks;
mod decay;
mod deferred;
mod disk;
mod excused_loss;
mod explore;
mod faults;
mod file;
mod flips;
mod flushes;
mod full;
mod image;
mod mismatched_files;
mod model;
mod mutants;
mod names;
mod pages;
mod random;
mod readers;
mod runner;
mod share;
mod state;
mod store;
mod subject;
mod versions;
mod workload;

use std::sync::atomic::{AtomicBool, Ordering};

use explore::{Failed, Tally, explore_twice, explore_workload};
use subject::Worker;
use workload::WORKLOADS;

/// Number of threads that explore. Each has its own workloads, disks and addresses.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, |n| n.get()).min(16)
}

/// Workloads that are short enough to crash twice at every operation.
fn short_workloads() -> impl Iterator<Item = usize> {
    const SHORT: &[&str] = &[
        "first_commit_sets_log_required",
        "a_kept_log_is_used_twice",
        "close_and_reopen_with_a_reader",
        "memory_checkpoint",
        "replaced_under_a_reader",
    ];
    (0..WORKLOADS.len()).filter(|index| SHORT.contains(&WORKLOADS[*index].name))
}

/// Explores all crash points of all workloads with each of these seeds.
fn explore_all(seeds: std::ops::Range<u64>) -> (Tally, Vec<Failed>) {
    let failed = AtomicBool::new(false);
    let workers = threads();
    let results: Vec<(Tally, Option<Failed>)> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..workers)
            .map(|own| {
                let (seeds, failed) = (seeds.clone(), &failed);
                scope.spawn(move || {
                    let worker = Worker::new();
                    let mut tally = Tally::default();
                    let mut turn = 0;
                    for index in 0..WORKLOADS.len() {
                        let is_mine = || {
                            turn += 1;
                            turn % workers == own && !failed.load(Ordering::Relaxed)
                        };
                        let seeds = seeds.clone();
                        if let Err(e) = explore_workload(&worker, index, seeds, is_mine, &mut tally)
                        {
                            failed.store(true, Ordering::Relaxed);
                            return (tally, Some(e));
                        }
                    }
                    for index in short_workloads() {
                        let is_mine = || {
                            turn += 1;
                            turn % workers == own && !failed.load(Ordering::Relaxed)
                        };
                        if let Err(e) = explore_twice(&worker, index, is_mine, &mut tally) {
                            failed.store(true, Ordering::Relaxed);
                            return (tally, Some(e));
                        }
                    }
                    (tally, None)
                })
            })
            .collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    });
    let crash_points = results.iter().map(|(tally, _)| tally.crash_points).sum();
    (Tally { crash_points }, results.into_iter().filter_map(|(_, failed)| failed).collect())
}

fn explore_and_report(seeds: std::ops::Range<u64>, at_least: u64) {
    let since = std::time::Instant::now();
    let (tally, failed) = explore_all(seeds);
    for failed in &failed {
        println!("{failed}");
    }
    println!("{} crash points in {:.1?}", tally.crash_points, since.elapsed());
    assert!(failed.is_empty(), "a promise was broken; the line above reproduces it");
    assert!(tally.crash_points >= at_least, "only {} crash points were tried", tally.crash_points);
}

/// Returns the first seed of the random part, from the environment.
fn first_seed() -> u64 {
    std::env::var("EVERMAP_SIM_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0)
}

#[test]
fn a_hundred_thousand_crash_points_leave_a_promised_state() {
    let first = first_seed();
    println!("EVERMAP_SIM_SEED={first}");
    explore_and_report(first..first + 12, 100_000);
}

#[test]
#[ignore = "takes many minutes; `make test-long` runs it"]
fn a_million_crash_points_leave_a_promised_state() {
    let first = first_seed();
    println!("EVERMAP_SIM_SEED={first}");
    explore_and_report(first..first + 150, 1_000_000);
}

/// Reproduces one crash point: `EVERMAP_SIM="workload=... crash_point=... inside=... stop=...
/// seed=..."`.
#[test]
fn reproduce() {
    let Ok(text) = std::env::var("EVERMAP_SIM") else {
        return;
    };
    match explore::reproduce(text.parse().unwrap()) {
        Ok(tally) => println!("{text}: {} crash points, all correct", tally.crash_points),
        Err(failed) => panic!("{failed}"),
    }
}
