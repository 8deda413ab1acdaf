//! Cancelled transfers.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use evermap_transfer::engines::{self, EngineKind, Stop};
use evermap_transfer::{Ends, Meter};

use super::common::*;

#[test]
fn cancelling_stops_every_engine_between_steps() {
    for dir in test_dirs() {
        let bytes = noise(1 << 20, 1);
        let (source, from) = dir.file("source", &bytes);
        for kind in EngineKind::ALL {
            let (target, to) = dir.file("target", b"");
            let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
            let cancelled = Arc::new(AtomicBool::new(false));
            let (meter, mut work) = (Meter::new(cancelled.clone()), whole(bytes.len()));
            let mut engine = engines::make(kind, &small());
            if engine.probe(&ends).is_err() {
                continue;
            }
            engine.step(&ends, &mut work, &meter, 300_000).unwrap();
            cancelled.store(true, Ordering::Relaxed);
            let remaining = work.clone();
            if !work.is_done() {
                let stop = engine.step(&ends, &mut work, &meter, 300_000).unwrap_err();
                assert!(matches!(stop, Stop::Cancelled), "{kind}: {stop:?}");
            }
            engine.drain(&ends, &mut work, &meter).unwrap();
            assert_eq!(work, remaining, "{kind}: bytes arrived after cancelling");
            assert_exact(kind.name(), &work, &to, &bytes);
        }
    }
}

#[test]
fn remaining_work_is_exact_wherever_a_transfer_is_cancelled() {
    for dir in test_dirs() {
        let bytes = noise(8 << 20, 2);
        let (source, from) = dir.file("source", &bytes);
        for kind in EngineKind::ALL {
            for round in 0..6u64 {
                let (target, to) = dir.file("target", b"");
                let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
                let cancelled = Arc::new(AtomicBool::new(false));
                let (meter, mut work) = (Meter::new(cancelled.clone()), whole(bytes.len()));
                let outcome = std::thread::scope(|scope| {
                    scope.spawn(|| {
                        std::thread::sleep(Duration::from_micros(300 * round));
                        cancelled.store(true, Ordering::Relaxed);
                    });
                    attempt(kind, &small(), &ends, &mut work, &meter, u64::MAX)
                });
                let what = format!("{kind} on {}", dir.name);
                match outcome {
                    None => break,
                    Some(Ok(())) => assert!(work.is_done(), "{what}"),
                    Some(Err(Stop::Cancelled | Stop::Refused(_))) => {}
                    Some(Err(stop)) => panic!("{what}: {stop:?}"),
                }
                assert_exact(&what, &work, &to, &bytes);
                assert_eq!(
                    Some(bytes.len() as u64 - meter.arrived_bytes()),
                    work.bytes(),
                    "{what}"
                );
            }
        }
    }
}

#[test]
fn cancelling_ends_the_wait_for_a_peer_that_does_not_read() {
    let dir = disk();
    let bytes = noise(8 << 20, 3);
    let (source, from) = dir.file("source", &bytes);
    for kind in EngineKind::ALL {
        let (ours, peer) = UnixStream::pair().unwrap();
        // Only a signal ends a call on a blocking socket. A ring can cancel its operations.
        ours.set_nonblocking(kind != EngineKind::UringSplice).unwrap();
        let ends = Ends::new((&source, &from), (&ours, "peer".as_ref())).unwrap();
        let cancelled = Arc::new(AtomicBool::new(false));
        let (meter, mut work) = (Meter::new(cancelled.clone()), whole(bytes.len()));
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(100));
                cancelled.store(true, Ordering::Relaxed);
            });
            attempt(kind, &small(), &ends, &mut work, &meter, u64::MAX)
        });
        let Some(outcome) = outcome else { continue };
        assert!(matches!(outcome, Err(Stop::Cancelled)), "{kind}: {outcome:?}");
        // Exactly the bytes the peer received are removed from the work.
        drop(ours);
        let mut received = Vec::new();
        std::io::Read::read_to_end(&mut &peer, &mut received).unwrap();
        assert_same(kind.name(), &received, &bytes[..bytes.len() - work.bytes().unwrap() as usize]);
    }
}
