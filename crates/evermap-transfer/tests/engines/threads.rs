//! What a thread may do, and which thread does it.

use evermap_transfer::engines::{self, EngineKind, Stop, Tuning};
use evermap_transfer::{Ends, Meter};

use super::common::*;

#[test]
fn rings_that_are_forbidden_are_a_refusal() {
    let place = disk();
    let bytes = noise(1 << 20, 41);
    let (source, from) = place.file("source", &bytes);
    let (target, to) = place.file("target", b"");
    // A filter is of one thread, and what that starts.
    let sandboxed = || {
        let forbidden = [(libc::SYS_io_uring_setup, Vec::new())].into_iter().collect();
        let (allow, refuse) = (
            seccompiler::SeccompAction::Allow,
            seccompiler::SeccompAction::Errno(libc::EPERM as u32),
        );
        let machine = std::env::consts::ARCH.try_into().unwrap();
        let filter = seccompiler::SeccompFilter::new(forbidden, allow, refuse, machine).unwrap();
        let program: seccompiler::BpfProgram = filter.try_into().unwrap();
        seccompiler::apply_filter(&program).unwrap();
        let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
        for kind in [EngineKind::Uring, EngineKind::UringSplice, EngineKind::UringDirect] {
            let why = engines::make(kind, &Tuning::default()).probe(&ends).unwrap_err();
            assert!(!why.0.is_empty(), "{kind}");
            let (meter, mut work) = (Meter::default(), whole(bytes.len()));
            let stop =
                engines::make(kind, &Tuning::default()).step(&ends, &mut work, &meter, u64::MAX);
            assert!(matches!(stop, Err(Stop::Refused(_))), "{kind}: {stop:?}");
        }
    };
    std::thread::scope(|scope| scope.spawn(sandboxed).join()).unwrap();
}

#[test]
fn an_engine_goes_from_thread_to_thread() {
    let place = disk();
    let bytes = noise(4 << 20, 42);
    let (source, from) = place.file("source", &bytes);
    for kind in EngineKind::ALL {
        let (target, to) = place.file("target", b"");
        let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
        let (meter, mut work) = (Meter::default(), whole(bytes.len()));
        let mut engine = engines::make(kind, &Tuning::default());
        if engine.probe(&ends).is_err() {
            continue;
        }
        while !work.is_done() {
            let (engine, ends, work, meter) = (&mut engine, &ends, &mut work, &meter);
            let step = || engine.step(ends, work, meter, 1 << 20);
            std::thread::scope(|scope| scope.spawn(step).join()).unwrap().unwrap();
        }
        assert_same(kind.name(), &contents(&to), &bytes);
    }
}
