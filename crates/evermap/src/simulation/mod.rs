//! The engine against a simulated disk: power cuts, kills, and errors at every call.
//!
//! A history (a short program that makes, changes, commits and closes an object) runs once on a
//! simulated disk, which writes every call down. From that, the disks that a cut at any of the calls
//! can leave are made without running the history again; the object is opened on each, a model of
//! what was promised judges what is there, and what the opening did is cut in turn.
//!
//! A failure prints one line that gives it back.
#![allow(clippy::unwrap_used)]

mod blocks;
mod checks;
mod decay;
mod deferred;
mod disk;
mod explore;
mod faults;
mod file;
mod flips;
mod flushes;
mod full;
mod history;
mod image;
mod model;
mod mutants;
mod names;
mod pages;
mod platter;
mod random;
mod readers;
mod runner;
mod share;
mod state;
mod store;
mod strangers;
mod subject;
mod vouched;

use std::sync::atomic::{AtomicBool, Ordering};

use explore::{Failed, Tally, explore_history, explore_twice};
use history::HISTORIES;
use subject::Worker;

/// Threads that cut; each has histories, disks and addresses of its own.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, |n| n.get()).min(16)
}

/// Histories short enough to be cut twice everywhere.
fn cut_twice() -> impl Iterator<Item = usize> {
    const SHORT: &[&str] = &[
        "first_commit_sets_log_required",
        "a_kept_log_is_used_twice",
        "close_and_reopen_beside_a_reader",
        "memory_checkpoint",
        "replaced_beside_a_reader",
    ];
    (0..HISTORIES.len()).filter(|index| SHORT.contains(&HISTORIES[*index].name))
}

/// Cuts every history at every point with each of these seeds.
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
                    for index in 0..HISTORIES.len() {
                        let mine = || {
                            turn += 1;
                            turn % workers == own && !failed.load(Ordering::Relaxed)
                        };
                        let seeds = seeds.clone();
                        if let Err(e) = explore_history(&worker, index, seeds, mine, &mut tally) {
                            failed.store(true, Ordering::Relaxed);
                            return (tally, Some(e));
                        }
                    }
                    for index in cut_twice() {
                        let mine = || {
                            turn += 1;
                            turn % workers == own && !failed.load(Ordering::Relaxed)
                        };
                        if let Err(e) = explore_twice(&worker, index, mine, &mut tally) {
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
    let cuts = results.iter().map(|(tally, _)| tally.cuts).sum();
    (Tally { cuts }, results.into_iter().filter_map(|(_, failed)| failed).collect())
}

fn explore_and_report(seeds: std::ops::Range<u64>, at_least: u64) {
    let since = std::time::Instant::now();
    let (tally, failed) = explore_all(seeds);
    for failed in &failed {
        println!("{failed}");
    }
    println!("{} cuts in {:.1?}", tally.cuts, since.elapsed());
    assert!(failed.is_empty(), "a cut was judged wrong; the line above gives it back");
    assert!(tally.cuts >= at_least, "only {} cuts were tried", tally.cuts);
}

/// First seed of the random part, from the environment.
fn first_seed() -> u64 {
    std::env::var("EVERMAP_SIM_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0)
}

#[test]
fn a_hundred_thousand_cuts_leave_a_promised_state() {
    let first = first_seed();
    println!("EVERMAP_SIM_SEED={first}");
    explore_and_report(first..first + 12, 100_000);
}

#[test]
#[ignore = "takes many minutes; `make test-long` runs it"]
fn a_million_cuts_leave_a_promised_state() {
    let first = first_seed();
    println!("EVERMAP_SIM_SEED={first}");
    explore_and_report(first..first + 150, 1_000_000);
}

/// Gives one cut back: `EVERMAP_SIM="history=... cut=... inside=... stop=... seed=..."`.
#[test]
fn reproduce() {
    let Ok(text) = std::env::var("EVERMAP_SIM") else {
        return;
    };
    match explore::reproduce(text.parse().unwrap()) {
        Ok(tally) => println!("{text}: {} cuts, none judged wrong", tally.cuts),
        Err(failed) => panic!("{failed}"),
    }
}
