//! Sources truncated during a copy.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use evermap_transfer::engines::{self, EngineKind, Stop};
use evermap_transfer::{Ends, Meter};

use super::common::*;

#[test]
fn source_truncated_between_steps_is_an_end_and_not_a_signal() {
    for dir in test_dirs() {
        for kind in EngineKind::ALL {
            // Cuts within a page, at a page boundary, and before all remaining work.
            for cut_bytes in [700_001u64, 700_416, 0, 4096, 123] {
                let bytes = noise(1 << 20, cut_bytes);
                let ((source, from), (target, to)) =
                    (dir.file("source", &bytes), dir.file("target", b""));
                let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
                let (meter, mut work) = (Meter::default(), whole(bytes.len()));
                let mut engine = engines::make(kind, &small());
                if engine.probe(&ends).is_err() {
                    continue;
                }
                engine.step(&ends, &mut work, &meter, 200_000).unwrap();
                if work.is_done() {
                    continue; // It shares extents, however many are asked for.
                }
                source.set_len(cut_bytes).unwrap();
                let what = format!("{kind} on {}, cut to {cut_bytes}", dir.name);
                let stop = loop {
                    match engine.step(&ends, &mut work, &meter, 200_000) {
                        Ok(()) => assert!(
                            !work.is_done(),
                            "{what}: more bytes arrived than the source has"
                        ),
                        Err(stop) => break stop,
                    }
                };
                engine.drain(&ends, &mut work, &meter).unwrap();
                assert_exact(&what, &work, &to, &bytes);
                let stop = match stop {
                    Stop::Refused(_) => {
                        attempt(EngineKind::ReadWrite, &small(), &ends, &mut work, &meter, u64::MAX)
                            .unwrap()
                            .unwrap_err()
                    }
                    stop => stop,
                };
                assert!(matches!(stop, Stop::SourceEnded { .. }), "{what}: {stop:?}");
                assert_exact(&what, &work, &to, &bytes);
            }
        }
    }
}

/// If the truncation meets a page in transit, the bytes after the new end read as zeros in any
/// program. So after the cut, zeros are as valid as the original bytes.
#[test]
fn source_truncated_during_a_step_leaves_no_foreign_bytes() {
    for dir in test_dirs() {
        for kind in EngineKind::ALL {
            for round in 0..12u64 {
                let bytes = noise(4 << 20, round);
                let ((source, from), (target, to)) =
                    (dir.file("source", &bytes), dir.file("target", b""));
                let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
                let (meter, mut work) = (Meter::default(), whole(bytes.len()));
                let cut_bytes = (1 << 20) + round * 200_003;
                let begun = AtomicBool::new(false);
                let outcome = std::thread::scope(|scope| {
                    scope.spawn(|| {
                        while !begun.load(Ordering::Acquire) {
                            std::hint::spin_loop();
                        }
                        std::thread::sleep(Duration::from_micros(round * 150));
                        source.set_len(cut_bytes).unwrap();
                    });
                    begun.store(true, Ordering::Release);
                    attempt(kind, &small(), &ends, &mut work, &meter, 1 << 20)
                });
                let what = format!("{kind} on {}, cut to {cut_bytes}", dir.name);
                let expected = matches!(
                    outcome,
                    None | Some(Ok(()) | Err(Stop::SourceEnded { .. } | Stop::Refused(_)))
                );
                assert!(expected, "{what}: {outcome:?}");
                let found = contents(&to);
                let remains = |at: u64| {
                    work.spans()
                        .iter()
                        .any(|remaining| (remaining.begin..remaining.end).contains(&at))
                };
                let cut_bytes = cut_bytes as usize;
                let (mut at, mut remains_at) = (0, remains(0));
                while at < found.len() {
                    if at % 4096 == 0
                        || work.spans().iter().any(|remaining| {
                            remaining.begin == at as u64 || remaining.end == at as u64
                        })
                    {
                        remains_at = remains(at as u64);
                    }
                    let is_true = found[at] == bytes[at] || (at >= cut_bytes && found[at] == 0);
                    assert!(remains_at || is_true, "{what}: wrong at {at}");
                    at += 1;
                }
                let last_due = work.spans().last().map_or(0, |remaining| remaining.end);
                assert!(
                    found.len() == bytes.len() || last_due == bytes.len() as u64,
                    "{what}: the target is too short for the remaining work"
                );
            }
        }
    }
}
