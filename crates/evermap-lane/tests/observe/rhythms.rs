//! Tests of observing running processes.

use std::time::Duration;

use evermap_lane::observe::{Observation, ObservedThread, Options, Source, observe};
use evermap_lane::{IoMode, Policy};

use crate::workloads::Workload;

/// Number of observations within which a rhythm must be found, since a loaded machine wakes threads
/// late.
const TRIES: usize = 4;

fn options(seconds: u64, only_poll: bool) -> Options {
    Options { time: Duration::from_secs(seconds), only_poll, ..Options::default() }
}

fn busiest(seen: &Observation) -> &ObservedThread {
    seen.threads.iter().max_by_key(|thread| thread.rhythm.wake_ups).unwrap()
}

fn is_near(value: f64, expected: f64, share: f64) -> bool {
    (value / expected - 1.0).abs() < share
}

/// Observes a child until its period is found.
fn finds(period_ns: u64, seconds: u64, only_poll: bool) -> Observation {
    let workload = Workload::start("workload_periodic", &[("PERIOD_NS", period_ns.to_string())]);
    let expected_us = period_ns as f64 / 1e3;
    let mut last = None;
    for _ in 0..TRIES {
        let seen = observe(workload.id(), &options(seconds, only_poll)).unwrap();
        let rhythm = busiest(&seen).rhythm;
        if rhythm.is_periodic() && is_near(rhythm.period_us.unwrap(), expected_us, 0.02) {
            return seen;
        }
        last = Some(seen);
    }
    panic!("{period_ns} ns was not found in {:#?}", last.map(|seen| seen.threads));
}

#[test]
fn rates_of_films_screens_and_control_loops_are_found() {
    std::thread::scope(|scope| {
        for (period_ns, seconds) in [(41_666_667, 6), (16_666_667, 4), (1_000_000, 2)] {
            scope.spawn(move || {
                let seen = finds(period_ns, seconds, false);
                let thread = busiest(&seen);
                assert!(thread.rhythm.wake_ups >= 100 && thread.processor_ms > 0.0, "{thread:?}");
                let policy = Policy::parse(&seen.stanza()).unwrap();
                let period = policy.period().unwrap().unwrap();
                assert!(is_near(period.ns() as f64, period_ns as f64, 0.02), "{}", seen.stanza());
            });
        }
    });
}

#[test]
fn counting_finds_slower_rhythms_and_reports_its_precision() {
    let seen = finds(20_000_000, 4, true);
    let Source::Polled { resolution_us } = busiest(&seen).source else {
        panic!("{:?}", busiest(&seen));
    };
    assert!(resolution_us >= 500.0, "{resolution_us}");
    assert!(seen.stanza().contains("counted every"), "{}", seen.stanza());
    assert!(!seen.warnings.is_empty());
}

#[test]
fn random_wake_ups_have_no_rhythm() {
    let seed = 42;
    let workload = Workload::start("workload_by_chance", &[("SEED", seed.to_string())]);
    let seen = observe(workload.id(), &options(4, false)).unwrap();
    let thread = busiest(&seen);
    assert!(!thread.rhythm.is_periodic(), "seed {seed}: {thread:?}");
    let policy = Policy::parse(&seen.stanza()).unwrap();
    assert_eq!(policy.period().unwrap(), None);
    assert!(policy.app.matches.is_some());
}

#[test]
fn files_are_listed_with_the_bytes_read() {
    let place = tempfile::tempdir().unwrap();
    let clip = place.path().join("a clip [1].bin");
    std::fs::write(&clip, vec![1; 64 << 20]).unwrap();
    let workload = Workload::start("workload_reading", &[("FILE", clip.display().to_string())]);
    let seen = observe(workload.id(), &options(3, false)).unwrap();
    let file = seen.files.iter().find(|file| file.path == clip).unwrap();
    assert_eq!((file.size_bytes, file.rewinds, file.is_written), (64 << 20, 0, false));
    // A fifth of its nominal rate: the machine may be loaded, and reads before the first look are
    // not counted.
    assert!(file.read_bytes >= 8192 * 60 && file.read_bytes.is_multiple_of(8192), "{file:?}");
    assert!(seen.read_bytes.unwrap() >= file.read_bytes, "{seen:?}");
    let policy = Policy::parse(&seen.stanza()).unwrap();
    assert_eq!((policy.io.mode, policy.tier.budget_mib), (IoMode::Nowait, Some(64)));
    assert!(glob::Pattern::new(&policy.tier.files[0]).unwrap().matches_path(&clip), "{policy:?}");
    // The test program itself is mapped, but is not for the tier.
    assert_eq!(policy.tier.files.len(), 1, "{policy:?}");
}

#[test]
fn a_real_time_thread_is_recognised() {
    let workload = Workload::start("workload_real_time", &[]);
    let seen = observe(workload.id(), &options(1, false)).unwrap();
    match seen.threads.iter().find(|thread| thread.scheduler == "fifo") {
        Some(thread) => {
            assert_eq!(thread.priority, 33);
            assert_eq!(Policy::parse(&seen.stanza()).unwrap().app.priority, 33);
        }
        None => eprintln!("skipped: no right to FIFO here"),
    }
}
