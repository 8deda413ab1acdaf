//! The file size limit of a process. A separate program, because limits apply to all threads.
#![allow(clippy::unwrap_used)]

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

use evermap_transfer::engines::{self, EngineKind, Stop, Tuning};
use evermap_transfer::{Ends, Meter, Side, Span, Work};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

fn create(directory: &Path, name: &str, contents: &[u8]) -> (File, PathBuf) {
    let path = directory.join(name);
    std::fs::write(&path, contents).unwrap();
    (OpenOptions::new().read(true).write(true).open(&path).unwrap(), path)
}

fn noise(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn finish(kind: EngineKind, ends: &Ends<'_>, work: &mut Work) {
    let meter = Meter::default();
    let mut engine = engines::make(kind, &Tuning::default());
    while !work.is_done() {
        engine.step(ends, work, &meter, u64::MAX).unwrap();
    }
    engine.drain(ends, work, &meter).unwrap();
}

#[test]
fn size_limit_stops_each_engine_with_exact_remaining_work() {
    // SAFETY: an ignored signal runs no code. Without this the limit would end this program.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let unlimited = getrlimit(Resource::Fsize);
    let bytes = noise(3 << 20);
    for temp in [
        tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).ok(),
        tempfile::tempdir_in("/dev/shm").ok(),
    ] {
        let Some(temp) = temp else { continue };
        let (source, from) = create(temp.path(), "source", &bytes);
        for kind in EngineKind::ALL {
            let (target, to) = create(temp.path(), "target", b"");
            let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
            let mut engine = engines::make(kind, &Tuning::default());
            if engine.probe(&ends).is_err() {
                continue;
            }
            let (meter, mut work) =
                (Meter::default(), Work::new([Span::new(0, bytes.len() as u64)]));
            setrlimit(
                Resource::Fsize,
                Rlimit { current: Some(1_000_100), maximum: unlimited.maximum },
            )
            .unwrap();
            let stop = loop {
                if let Err(stop) = engine.step(&ends, &mut work, &meter, 400_000) {
                    break stop;
                }
            };
            setrlimit(Resource::Fsize, unlimited).unwrap();
            let is_limit =
                matches!(stop, Stop::Failed { side: Side::Target, errno: Errno::FBIG, .. });
            assert!(is_limit || matches!(stop, Stop::Refused(_)), "{kind}: {stop:?}");
            engine.drain(&ends, &mut work, &meter).unwrap();
            let found = std::fs::read(&to).unwrap();
            let mut remains = vec![false; bytes.len()];
            work.spans().iter().for_each(|remaining| {
                remains[remaining.begin as usize..remaining.end as usize].fill(true)
            });
            let is_true =
                (0..bytes.len()).all(|at| remains[at] || found.get(at) == Some(&bytes[at]));
            assert!(is_true, "{kind}: bytes counted as arrived are missing in the target");
            finish(EngineKind::ReadWrite, &ends, &mut work);
            assert!(std::fs::read(&to).unwrap() == bytes, "{kind}");
        }
    }
}
