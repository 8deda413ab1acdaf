//! Engines in restricted threads, and moving between threads.

use evermap_transfer::engines::{self, EngineKind, Stop, Tuning};
use evermap_transfer::{Ends, Meter};

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use super::common::*;

/// Runs `claim` in a thread in which this system call is forbidden.
fn without(call: libc::c_long, claim: impl FnOnce() + Send) {
    let sandboxed = || {
        let forbidden = [(call, Vec::new())].into_iter().collect();
        let (allow, refuse) = (SeccompAction::Allow, SeccompAction::Errno(libc::EPERM as u32));
        let machine = std::env::consts::ARCH.try_into().unwrap();
        let program: BpfProgram =
            SeccompFilter::new(forbidden, allow, refuse, machine).unwrap().try_into().unwrap();
        // Applies to this thread and threads it starts.
        seccompiler::apply_filter(&program).unwrap();
        claim();
    };
    std::thread::scope(|scope| scope.spawn(sandboxed).join()).unwrap();
}

#[test]
fn forbidden_io_uring_is_a_refusal() {
    let dir = disk();
    let bytes = noise(1 << 20, 41);
    let ((source, from), (target, to)) = (dir.file("source", &bytes), dir.file("target", b""));
    without(libc::SYS_io_uring_setup, || {
        let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
        for kind in [EngineKind::Uring, EngineKind::UringSplice, EngineKind::UringDirect] {
            let mut engine = engines::make(kind, &Tuning::default());
            assert!(engine.probe(&ends).is_err(), "{kind}");
            let stop = engine.step(&ends, &mut whole(bytes.len()), &Meter::default(), u64::MAX);
            assert!(matches!(stop, Err(Stop::Refused(_))), "{kind}: {stop:?}");
        }
    });
}

#[test]
fn rings_work_without_registered_memory() {
    if !has_rings() {
        return;
    }
    let dir = disk();
    let bytes = noise((3 << 20) + 17, 43);
    let (source, from) = dir.file("source", &bytes);
    without(libc::SYS_io_uring_register, || {
        for kind in [EngineKind::Uring, EngineKind::UringDirect] {
            let (target, to) = dir.file("target", b"");
            let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
            let mut work = whole(bytes.len());
            match attempt(kind, &small(), &ends, &mut work, &Meter::default(), u64::MAX) {
                None => assert!(kind == EngineKind::UringDirect && ends.target.direct().is_none()),
                Some(outcome) => {
                    outcome.unwrap();
                    assert_same(kind.name(), &contents(&to), &bytes);
                }
            }
        }
    });
}

#[test]
fn engine_can_move_between_threads() {
    let dir = disk();
    let bytes = noise(4 << 20, 42);
    let (source, from) = dir.file("source", &bytes);
    for kind in EngineKind::ALL {
        let (target, to) = dir.file("target", b"");
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
