//! Full targets.

use std::fs::File;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use evermap_transfer::engines::{self, EngineKind, Stop};
use evermap_transfer::{Ends, Meter, Side, Work};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::common::*;

/// Removes `filler` and waits until its space is usable: a journal frees it with a delay.
fn free_space(filler: &Path, target: &File, bytes: usize) {
    std::fs::remove_file(filler).unwrap();
    for _ in 0..1000 {
        if rustix::fs::fallocate(target, FallocateFlags::KEEP_SIZE, 0, bytes as u64).is_ok() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("removing {} freed no space", filler.display());
}

/// Waits until `dir` is as empty as before: the kernel's ring workers close their files, and free
/// the space, with a delay.
fn wait_until_empty(dir: &TestDir, free_blocks: u64) {
    let is_empty = || rustix::fs::statvfs(dir.path()).unwrap().f_bfree + 16 >= free_blocks;
    for _ in 0..1000 {
        if is_empty() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{} did not become as empty as before", dir.name);
}

/// Fills `dir` except for about `left` bytes. Returns the file to remove later.
fn fill_up(dir: &TestDir, left: u64) -> PathBuf {
    let (filler, path) = dir.file("filler", b"");
    let (mut filled, mut chunk) = (0, 32u64 << 20);
    while chunk >= 64 << 10 {
        let free = rustix::fs::statvfs(dir.path()).unwrap();
        // Root may use the reserved blocks.
        let is_too_much = free.f_bfree * free.f_frsize < left + chunk;
        match !is_too_much
            && rustix::fs::fallocate(&filler, FallocateFlags::empty(), filled, chunk).is_ok()
        {
            true => filled += chunk,
            false => chunk /= 2,
        }
    }
    path
}

#[test]
fn full_target_fails_and_freed_space_is_used() {
    // xfs frees space of a removed file too late for a test.
    for (file_system, mebibytes) in [("tmpfs", 4), ("ext4", 48)] {
        let Some(dir) = mounted(file_system, mebibytes) else { continue };
        let sources = disk();
        let bytes = noise(3 << 20, 6);
        let free_blocks = rustix::fs::statvfs(dir.path()).unwrap().f_bfree;
        let (source, from) = sources.file("source", &bytes);
        for first in EngineKind::ALL {
            for second in [
                first,
                EngineKind::ReadWrite,
                EngineKind::Splice,
                EngineKind::UringSplice,
                EngineKind::UringDirect,
            ] {
                wait_until_empty(&dir, free_blocks);
                let filler = fill_up(&dir, 1 << 20);
                let (target, to) = dir.file("target", b"");
                let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
                let (meter, mut work) = (Meter::default(), whole(bytes.len()));
                let mut engine = engines::make(first, &small());
                if engine.probe(&ends).is_ok() {
                    let what = format!("{first}, then {second}, on {file_system}");
                    let stop = loop {
                        match engine.step(&ends, &mut work, &meter, 700_000) {
                            Ok(()) => {
                                assert!(!work.is_done(), "{what}: more bytes arrived than fit")
                            }
                            Err(stop) => break stop,
                        }
                    };
                    let is_full = matches!(
                        stop,
                        Stop::Failed { side: Side::Target, errno: Errno::NOSPC, .. }
                    );
                    assert!(is_full || matches!(stop, Stop::Refused(_)), "{what}: {stop:?}");
                    assert_exact(&what, &work, &to, &bytes);
                    free_space(&filler, &target, bytes.len());
                    if first == second && is_full {
                        // Continue with the same engine.
                        while !work.is_done() {
                            engine.step(&ends, &mut work, &meter, 700_000).unwrap();
                        }
                    }
                    engine.drain(&ends, &mut work, &meter).unwrap();
                    finish(second, &small(), &ends, &mut work, 700_000);
                    assert_same(&what, &contents(&to), &bytes);
                }
                let _ = std::fs::remove_file(&filler);
                drop(target);
                let _ = std::fs::remove_file(&to);
            }
        }
    }
}

#[test]
fn bytes_taken_from_a_stream_survive_a_full_target() {
    let Some(dir) = mounted("tmpfs", 4) else { return };
    let bytes = noise(3 << 20, 7);
    let free_blocks = rustix::fs::statvfs(dir.path()).unwrap().f_bfree;
    for kind in EngineKind::ALL {
        for second in [kind, EngineKind::ReadWrite, EngineKind::Splice] {
            wait_until_empty(&dir, free_blocks);
            let filler = fill_up(&dir, 1 << 20);
            let (target, to) = dir.file("target", b"");
            let (mut peer, ours) = UnixStream::pair().unwrap();
            let ends = Ends::new((&ours, "peer".as_ref()), (&target, &to)).unwrap();
            let mut engine = engines::make(kind, &small());
            if engine.probe(&ends).is_ok() {
                let (meter, mut work) = (Meter::default(), Work::open(0));
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        peer.write_all(&bytes).unwrap();
                        peer.shutdown(std::net::Shutdown::Both).unwrap();
                    });
                    let stop = loop {
                        if let Err(stop) = engine.step(&ends, &mut work, &meter, 100_000) {
                            break stop;
                        }
                    };
                    assert!(
                        matches!(
                            stop,
                            Stop::Failed { side: Side::Target, errno: Errno::NOSPC, .. }
                        ),
                        "{stop:?}"
                    );
                    // Still full: the engine keeps the bytes it holds.
                    let again = engine.drain(&ends, &mut work, &meter);
                    assert!(
                        matches!(again, Ok(()) | Err(Stop::Failed { .. })),
                        "{kind}: {again:?}"
                    );
                    free_space(&filler, &target, bytes.len());
                    if second == kind {
                        // Continue with the same engine.
                        while !work.is_done() {
                            engine.step(&ends, &mut work, &meter, 100_000).unwrap();
                        }
                    }
                    engine.drain(&ends, &mut work, &meter).unwrap();
                    finish(second, &small(), &ends, &mut work, 100_000);
                });
                assert_same(&format!("{kind}, then {second}"), &contents(&to), &bytes);
            }
            let _ = std::fs::remove_file(&filler);
            std::fs::remove_file(&to).unwrap();
        }
    }
}

#[test]
fn full_pipe_is_drained_before_more_is_read() {
    let Some(dir) = mounted("tmpfs", 4) else { return };
    let bytes = noise(1 << 20, 8);
    let (target, to) = dir.file("target", b"");
    let filler = fill_up(&dir, 0);
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let ends = Ends::new((&reader, "pipe".as_ref()), (&target, &to)).unwrap();
    let (meter, mut work) = (Meter::default(), Work::open(0));
    std::thread::scope(|scope| {
        // Filled before the first step, so that the engine's own pipe is filled to its last page.
        let mut writer = File::from(writer);
        writer.write_all(&bytes[..64 << 10]).unwrap();
        let rest = &bytes[64 << 10..];
        scope.spawn(move || writer.write_all(rest).unwrap());
        let mut engine = engines::make(EngineKind::Splice, &small());
        for _ in 0..3 {
            let stop = engine.step(&ends, &mut work, &meter, u64::MAX).unwrap_err();
            assert!(
                matches!(stop, Stop::Failed { side: Side::Target, errno: Errno::NOSPC, .. }),
                "{stop:?}"
            );
        }
        free_space(&filler, &target, bytes.len());
        while !work.is_done() {
            engine.step(&ends, &mut work, &meter, u64::MAX).unwrap();
        }
        engine.drain(&ends, &mut work, &meter).unwrap();
    });
    assert_same("splice", &contents(&to), &bytes);
}

#[test]
fn always_full_device_fails() {
    let dir = disk();
    let bytes = noise(300_000, 2);
    let (source, from) = dir.file("source", &bytes);
    for kind in EngineKind::ALL {
        let target = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let ends = Ends::new((&source, &from), (&target, "/dev/full".as_ref())).unwrap();
        let mut work = whole(bytes.len());
        match attempt(kind, &small(), &ends, &mut work, &Meter::default(), u64::MAX) {
            None | Some(Err(Stop::Refused(_))) => {}
            Some(Err(Stop::Failed { side: Side::Target, errno: Errno::NOSPC, .. })) => {}
            other => panic!("{kind}: {other:?}"),
        }
        assert_eq!(work, whole(bytes.len()), "{kind}");
    }
}
