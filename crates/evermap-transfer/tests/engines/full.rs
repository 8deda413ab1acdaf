//! Targets without room.

use std::fs::File;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use evermap_transfer::engines::{self, EngineKind, Stop};
use evermap_transfer::{Ends, Meter, Side, Work};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::common::*;

/// Removes `filler`, and waits until its room may be used: a journal gives it back some time after it was written.
fn make_room(filler: &Path, target: &File, bytes: usize) {
    std::fs::remove_file(filler).unwrap();
    for _ in 0..1000 {
        if rustix::fs::fallocate(target, FallocateFlags::KEEP_SIZE, 0, bytes as u64).is_ok() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{} gave no room back", filler.display());
}

/// Waits until `place` is as empty as it was: what a ring's workers in the kernel had open is closed, and gives its
/// room back, some time after the ring was.
fn settle(place: &Place, free_blocks: u64) {
    let is_settled = || rustix::fs::statvfs(place.path()).unwrap().f_bfree + 16 >= free_blocks;
    for _ in 0..1000 {
        if is_settled() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{} did not become as empty as it was", place.name);
}

/// Fills `place` but for about `left` bytes. Room is made by removing the file.
fn fill_up(place: &Place, left: u64) -> PathBuf {
    let (filler, path) = place.file("filler", b"");
    let (mut filled, mut chunk) = (0, 32u64 << 20);
    while chunk >= 64 << 10 {
        let free = rustix::fs::statvfs(place.path()).unwrap();
        // Root may use what is kept for it.
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
fn a_full_target_fails_and_room_made_meanwhile_is_used() {
    // xfs gives room back some time after a file was removed, which no test can wait for.
    for (file_system, mebibytes) in [("tmpfs", 4), ("ext4", 48)] {
        let Some(place) = made(file_system, mebibytes) else { continue };
        let sources = disk();
        let bytes = noise(3 << 20, 6);
        let free_blocks = rustix::fs::statvfs(place.path()).unwrap().f_bfree;
        let (source, from) = sources.file("source", &bytes);
        for first in EngineKind::ALL {
            for second in [
                first,
                EngineKind::ReadWrite,
                EngineKind::Splice,
                EngineKind::UringSplice,
                EngineKind::UringDirect,
            ] {
                settle(&place, free_blocks);
                let filler = fill_up(&place, 1 << 20);
                let (target, to) = place.file("target", b"");
                let ends = Ends::new((&source, &from), (&target, &to)).unwrap();
                let (meter, mut work) = (Meter::default(), whole(bytes.len()));
                let mut engine = engines::make(first, &small());
                if engine.probe(&ends).is_ok() {
                    let what = format!("{first}, then {second}, on {file_system}");
                    let stop = loop {
                        match engine.step(&ends, &mut work, &meter, 700_000) {
                            Ok(()) => assert!(
                                !work.is_done(),
                                "{what}: more arrived than there is room for"
                            ),
                            Err(stop) => break stop,
                        }
                    };
                    let is_full = matches!(
                        stop,
                        Stop::Failed { side: Side::Target, errno: Errno::NOSPC, .. }
                    );
                    assert!(is_full || matches!(stop, Stop::Refused(_)), "{what}: {stop:?}");
                    assert_account(&what, &work, &to, &bytes);
                    make_room(&filler, &target, bytes.len());
                    if first == second && is_full {
                        // The same one, as it was left.
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
fn what_was_taken_from_a_stream_survives_a_full_target() {
    let Some(place) = made("tmpfs", 4) else { return };
    let bytes = noise(3 << 20, 7);
    let free_blocks = rustix::fs::statvfs(place.path()).unwrap().f_bfree;
    for kind in EngineKind::ALL {
        for second in [kind, EngineKind::ReadWrite, EngineKind::Splice] {
            settle(&place, free_blocks);
            let filler = fill_up(&place, 1 << 20);
            let (target, to) = place.file("target", b"");
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
                    // Still no room: what it holds stays with it.
                    let again = engine.drain(&ends, &mut work, &meter);
                    assert!(
                        matches!(again, Ok(()) | Err(Stop::Failed { .. })),
                        "{kind}: {again:?}"
                    );
                    make_room(&filler, &target, bytes.len());
                    if second == kind {
                        // The same one, as it was left.
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
fn a_full_pipe_before_a_full_target_is_emptied_before_more_is_taken() {
    let Some(place) = made("tmpfs", 4) else { return };
    let bytes = noise(1 << 20, 8);
    let (target, to) = place.file("target", b"");
    let filler = fill_up(&place, 0);
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let ends = Ends::new((&reader, "pipe".as_ref()), (&target, &to)).unwrap();
    let (meter, mut work) = (Meter::default(), Work::open(0));
    std::thread::scope(|scope| {
        // Full before the first step, so that the engine's own pipe is filled to its last page.
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
        make_room(&filler, &target, bytes.len());
        while !work.is_done() {
            engine.step(&ends, &mut work, &meter, u64::MAX).unwrap();
        }
        engine.drain(&ends, &mut work, &meter).unwrap();
    });
    assert_same("splice", &contents(&to), &bytes);
}

#[test]
fn a_device_that_is_always_full_fails() {
    let place = disk();
    let bytes = noise(300_000, 2);
    let (source, from) = place.file("source", &bytes);
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
