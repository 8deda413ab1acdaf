//! Signals at any time, with a handler that does not restart calls. A separate program, because a
//! handler applies to the whole process.
#![allow(clippy::unwrap_used)]

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use evermap_transfer::engines::{self, EngineKind, Stop, Tuning};
use evermap_transfer::{Ends, Meter, Span, Work};

static SIGNALS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

/// Installs the handler without restarting interrupted calls.
fn handle() {
    // SAFETY: the structure is zeroed except for a handler, which only adds to an atomic.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = count as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
    }
}

/// Sends signals to this thread during `work`. Signals to the process would go to the main thread,
/// which only waits.
fn storm(work: impl FnOnce()) {
    // SAFETY: only returns this thread's identifier.
    let thread = unsafe { libc::pthread_self() };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                // SAFETY: the thread is alive: it joins this one at the end of the scope.
                unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
                std::thread::sleep(Duration::from_micros(50));
            }
        });
        // Ends the storm even if `work` panics.
        let _over = Over(&is_over);
        work();
    });
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
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

/// Moves all of `work`. If the engine refuses, `read-write` moves it.
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
    // These may refuse later, for reasons that only the file system knows.
    let may_refuse = [EngineKind::Reflink, EngineKind::CopyFileRange].contains(&kind);
    let mut outcome = engine.probe(ends).map_err(Stop::Refused);
    let is_served =
        outcome.is_ok() && (!may_refuse && work.bytes().is_some() || kind == EngineKind::ReadWrite);
    while outcome.is_ok() && !work.is_done() {
        outcome = engine.step(ends, work, &meter, 1 << 20);
    }
    engine.drain(ends, work, &meter).unwrap();
    match outcome {
        Ok(()) => {}
        Err(Stop::Refused(_)) if !is_served => run(EngineKind::ReadWrite, ends, work),
        Err(stop) => panic!("{kind}: {stop:?}"),
    }
}

#[test]
fn signals_do_not_disturb_any_engine() {
    let bytes = noise((6 << 20) + 99);
    let temp_dirs = [
        tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).ok(),
        tempfile::tempdir_in("/dev/shm").ok(),
    ];
    handle();
    for temp in temp_dirs.iter().flatten() {
        let (mut source, from) = create(temp.path(), "source");
        source.write_all(&bytes).unwrap();
        for kind in EngineKind::ALL {
            let (target, to) = create(temp.path(), "target");
            let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
            storm(|| run(kind, &ends, &mut Work::new([Span::new(0, bytes.len() as u64)])));
            assert!(std::fs::read(&to).unwrap() == bytes, "{kind} to a file");

            let (near, mut far) = UnixStream::pair().unwrap();
            let received = std::thread::scope(|scope| {
                let receiver = scope.spawn(move || {
                    let mut received = Vec::new();
                    far.read_to_end(&mut received).unwrap();
                    received
                });
                let ends = Ends::new((&source, &from), (&near, "peer".as_ref())).unwrap();
                storm(|| run(kind, &ends, &mut Work::new([Span::new(0, bytes.len() as u64)])));
                drop(near);
                receiver.join().unwrap()
            });
            assert!(received == bytes, "{kind} to a socket");

            let (mut near, far) = UnixStream::pair().unwrap();
            let (target, to) = create(temp.path(), "target");
            std::thread::scope(|scope| {
                let bytes = &bytes;
                scope.spawn(move || near.write_all(bytes).unwrap());
                let ends = Ends::new((&far, "peer".as_ref()), (&target, &to)).unwrap();
                storm(|| run(kind, &ends, &mut Work::open(0)));
            });
            assert!(std::fs::read(&to).unwrap() == bytes, "{kind} from a socket");
        }
    }
    assert!(SIGNALS.load(Ordering::Relaxed) > 100, "too few signals arrived");
}
