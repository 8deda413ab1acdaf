//! One engine continuing after another.

use evermap_transfer::engines::{self, EngineKind, Stop};
use evermap_transfer::{Ends, Meter};

use super::common::*;

#[test]
fn every_engine_continues_after_every_other() {
    for dir in test_dirs() {
        let bytes = noise((1 << 20) + 77, 11);
        let (source, from) = dir.file("source", &bytes);
        for first in EngineKind::ALL {
            for second in EngineKind::ALL {
                let (target, to) = dir.file("target", b"");
                let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
                let (meter, mut work) = (Meter::default(), whole(bytes.len()));
                let mut engine = engines::make(first, &small());
                if engine.probe(&ends).is_ok() {
                    match engine.step(&ends, &mut work, &meter, 300_001) {
                        Ok(()) | Err(Stop::Refused(_)) => {}
                        Err(stop) => panic!("{first}: {stop:?}"),
                    }
                    engine.drain(&ends, &mut work, &meter).unwrap();
                    assert_exact(first.name(), &work, &to, &bytes);
                }
                finish(second, &small(), &ends, &mut work, 250_000);
                let what = format!("{first}, then {second}, on {}", dir.name);
                assert_same(&what, &contents(&to), &bytes);
            }
        }
    }
}
