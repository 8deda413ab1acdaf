//! One engine after another.

use evermap_transfer::engines::{self, EngineKind, Stop};
use evermap_transfer::{Ends, Meter};

use super::common::*;

#[test]
fn any_engine_goes_on_where_any_other_was() {
    for place in places() {
        let bytes = noise((1 << 20) + 77, 11);
        let (source, from) = place.file("source", &bytes);
        for first in EngineKind::ALL {
            for second in EngineKind::ALL {
                let (target, to) = place.file("target", b"");
                let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
                let (meter, mut work) = (Meter::default(), whole(bytes.len()));
                let mut engine = engines::make(first, &small());
                if engine.probe(&ends).is_ok() {
                    match engine.step(&ends, &mut work, &meter, 300_001) {
                        Ok(()) | Err(Stop::Refused(_)) => {}
                        Err(stop) => panic!("{first}: {stop:?}"),
                    }
                    engine.drain(&ends, &mut work, &meter).unwrap();
                    assert_account(first.name(), &work, &to, &bytes);
                }
                finish(second, &small(), &ends, &mut work, 250_000);
                let what = format!("{first}, then {second}, on {}", place.name);
                assert_same(&what, &contents(&to), &bytes);
            }
        }
    }
}
