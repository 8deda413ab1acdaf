//! Signals at any moment, with a handler that does not have calls restarted: every engine goes on. A program of its own,
//! as a timer's signals go to all threads of a process.
#![allow(clippy::unwrap_used)]

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use evermap_transfer::engines::{self, EngineKind, Stop, Tuning};
use evermap_transfer::{Ends, Meter, Span, Work};

static SIGNALS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

/// A signal every 150 us, of time or of processor time, until it is dropped.
struct Storm;

impl Storm {
    fn new() -> Storm {
        // SAFETY: the structure is zeros and a handler, which only adds to an atomic number.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = count as *const () as usize;
            assert_eq!(libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut()), 0);
        }
        Storm::every(150);
        Storm
    }

    fn every(us: libc::suseconds_t) {
        let interval = libc::timeval { tv_sec: 0, tv_usec: us };
        let timer = libc::itimerval { it_interval: interval, it_value: interval };
        // SAFETY: the structure is whole, and nothing of it is kept.
        assert_eq!(unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()) }, 0);
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        Storm::every(0);
    }
}

fn noise(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn create(directory: &Path, name: &str) -> (File, PathBuf) {
    let path = directory.join(name);
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    (file, path)
}

/// Moves all; what the engine refuses, `read-write` does.
fn run(kind: EngineKind, ends: &Ends<'_>, work: &mut Work) {
    let tuning = Tuning {
        chunk_bytes: 16 << 10,
        window_bytes: 64 << 10,
        direct_window_bytes: 64 << 10,
        pipe_bytes: 64 << 10,
        ring_chunk_bytes: 64 << 10,
        ..Tuning::default()
    };
    let meter = Meter::default();
    let mut engine = engines::make(kind, &tuning);
    let mut outcome = engine.probe(ends).map_err(Stop::Refused);
    while outcome.is_ok() && !work.is_done() {
        outcome = engine.step(ends, work, &meter, 1 << 20);
    }
    engine.drain(ends, work, &meter).unwrap();
    match outcome {
        Ok(()) => {}
        Err(Stop::Refused(_)) if kind != EngineKind::ReadWrite => {
            run(EngineKind::ReadWrite, ends, work)
        }
        Err(stop) => panic!("{kind}: {stop:?}"),
    }
}

#[test]
fn signals_disturb_no_engine() {
    let bytes = noise((6 << 20) + 99);
    let places = [
        tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).ok(),
        tempfile::tempdir_in("/dev/shm").ok(),
    ];
    let storm = Storm::new();
    for place in places.iter().flatten() {
        let (mut source, from) = create(place.path(), "source");
        source.write_all(&bytes).unwrap();
        for kind in EngineKind::ALL {
            let (target, to) = create(place.path(), "target");
            let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
            run(kind, &ends, &mut Work::new([Span::new(0, bytes.len() as u64)]));
            assert!(std::fs::read(&to).unwrap() == bytes, "{kind} to a file");

            let (near, mut far) = UnixStream::pair().unwrap();
            let received = std::thread::scope(|scope| {
                let receiver = scope.spawn(move || {
                    let mut received = Vec::new();
                    far.read_to_end(&mut received).unwrap();
                    received
                });
                let ends = Ends::new((&source, &from), (&near, "peer".as_ref())).unwrap();
                run(kind, &ends, &mut Work::new([Span::new(0, bytes.len() as u64)]));
                drop(near);
                receiver.join().unwrap()
            });
            assert!(received == bytes, "{kind} to a socket");

            let (mut near, far) = UnixStream::pair().unwrap();
            let (target, to) = create(place.path(), "target");
            std::thread::scope(|scope| {
                let bytes = &bytes;
                scope.spawn(move || near.write_all(bytes).unwrap());
                let ends = Ends::new((&far, "peer".as_ref()), (&target, &to)).unwrap();
                run(kind, &ends, &mut Work::open(0));
            });
            assert!(std::fs::read(&to).unwrap() == bytes, "{kind} from a socket");
        }
    }
    drop(storm);
    assert!(SIGNALS.load(Ordering::Relaxed) > 100, "there were signals");
}
