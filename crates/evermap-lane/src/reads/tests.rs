//! Tests of the properties common to all modes, and of each mode.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::*;
use crate::Error;
use crate::sys::lease;

pub(super) struct Clip {
    _directory: tempfile::TempDir,
    pub(super) path: PathBuf,
    pub(super) bytes: Vec<u8>,
}

/// Makes a file beside the build, since `/tmp` may be in memory.
pub(super) fn clip(length: usize) -> Clip {
    let ground = option_env!("CARGO_TARGET_TMPDIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = tempfile::tempdir_in(ground).unwrap();
    let path = directory.path().join("clip");
    let word = |at: u64| (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    let bytes: Vec<u8> = (0..length.div_ceil(8) as u64).flat_map(word).take(length).collect();
    fs::write(&path, &bytes).unwrap();
    Clip { _directory: directory, path, bytes }
}

pub(super) fn options(mode: IoMode) -> ReadOptions {
    ReadOptions {
        mode,
        ahead: Duration::from_millis(500),
        spin: Duration::from_micros(200),
        lock: Lock::Unwanted,
        tier: None,
        budget: Budget::default(),
        inject_ns_per_4k: 0,
        is_direct: false,
        is_looping: false,
        read_bytes: None,
        period: None,
        helper: HelperOptions::default(),
    }
}

/// All modes, with their variants.
fn all_options() -> Vec<ReadOptions> {
    let mut all_options: Vec<ReadOptions> =
        [IoMode::Map, IoMode::Nowait, IoMode::Uring, IoMode::Blocking].map(options).into();
    all_options.push(ReadOptions { is_direct: true, ..options(IoMode::Blocking) });
    all_options.push(small_ring());
    all_options
}

/// Ring of a few reads of 40,000 bytes, so that most files are longer.
fn small_ring() -> ReadOptions {
    ReadOptions {
        read_bytes: Some(40_000),
        period: Some(Duration::from_millis(100)),
        ahead: Duration::from_millis(200),
        ..options(IoMode::Nowait)
    }
}

pub(super) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..4_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{what}: not within 20 s");
}

#[test]
fn every_mode_returns_the_file_s_bytes_at_any_offset() {
    for length in [0, 1, 4_095, 4_096, 100_000, 1_234_567] {
        let clip = clip(length);
        for options in all_options() {
            let mut reader = open(&clip.path, &options).unwrap();
            assert_eq!(reader.length_bytes(), length as u64);
            for offset in [0, 1, 511, 4_096, 65_536, 3, 1_234_560, length / 2, length, length + 1] {
                for wanted in [0, 1, 4_096, 40_000, 300_000] {
                    let (bytes, _) = reader.read(offset as u64, wanted).unwrap();
                    let from = offset.min(length);
                    let to = (offset + wanted).min(length).max(from);
                    assert!(bytes == &clip.bytes[from..to], "{:?} {offset} {wanted}", options.mode);
                }
            }
            assert_eq!(reader.read(u64::MAX, usize::MAX).unwrap().0, b"");
        }
    }
}

#[test]
fn every_mode_reads_a_file_repeatedly() {
    let clip = clip(1_000_003);
    for options in all_options() {
        let options = ReadOptions { is_looping: true, ..options };
        let mut reader = open(&clip.path, &options).unwrap();
        for _ in 0..3 {
            let mut offset = 0;
            while offset < clip.bytes.len() {
                let (bytes, _) = reader.read(offset as u64, 40_000).unwrap();
                let to = clip.bytes.len().min(offset + 40_000);
                assert!(bytes == &clip.bytes[offset..to], "{:?} at {offset}", options.mode);
                offset = to;
            }
        }
    }
}

#[test]
fn a_truncated_file_is_an_error_in_every_mode_and_never_a_signal() {
    for options in all_options() {
        let clip = clip(800_000);
        let mut reader = open(&clip.path, &options).unwrap();
        reader.read(0, 4_096).unwrap();
        File::options().write(true).open(&clip.path).unwrap().set_len(10_000).unwrap();
        if options.mode == IoMode::Map {
            // The copy is private.
            let (bytes, _) = reader.read(700_000, 100_000).unwrap();
            assert!(bytes == &clip.bytes[700_000..]);
            continue;
        }
        let mut last = None;
        wait_until("the truncation is noticed", || {
            last = reader.read(700_000, 4_096).err();
            last.is_some()
        });
        let error = last.unwrap();
        assert!(
            matches!(error, Error::Truncated { was_bytes: 800_000, is_bytes: 10_000, .. }),
            "{:?}: {error}",
            options.mode
        );
    }
}

#[test]
fn a_changed_file_is_an_error_in_every_mode_without_a_copy() {
    for options in all_options().into_iter().filter(|options| options.mode != IoMode::Map) {
        for grows in [false, true] {
            let clip = clip(800_000);
            let mut reader = open(&clip.path, &options).unwrap();
            reader.read(0, 4_096).unwrap();
            // Before Linux 6.13 times of change have the resolution of a clock tick.
            std::thread::sleep(Duration::from_millis(20));
            let file = File::options().write(true).open(&clip.path).unwrap();
            file.write_all_at(b"changed", if grows { 800_000 } else { 500_000 }).unwrap();
            let mut last = None;
            wait_until("the change is noticed", || {
                last = reader.read(500_000, 4_096).err();
                last.is_some()
            });
            let error = last.unwrap();
            assert!(matches!(error, Error::Changed { .. }), "{:?}: {error}", options.mode);
        }
    }
}

#[test]
fn a_file_on_the_tier_is_mapped_in_place_and_released_to_a_writer() {
    let clip = clip(300_000);
    let tier = clip.path.parent().map(Into::into);
    let options = ReadOptions { tier, ..options(IoMode::Map) };
    let mut reader = open(&clip.path, &options).unwrap();
    assert_eq!(reader.notes(), [], "the lease was taken");
    let (bytes, served) = reader.read(0, 300_000).unwrap();
    assert_eq!((bytes, served), (&clip.bytes[..], Served::Mapped));
    let path = clip.path.clone();
    // Blocks until the lease is released.
    let cutter = std::thread::spawn(move || {
        File::options().write(true).open(path).unwrap().set_len(0).unwrap();
    });
    let mut last = None;
    wait_until("the lease break is noticed", || {
        match reader.read(0, 300_000) {
            Ok((bytes, _)) => {
                assert!(bytes == &clip.bytes[..], "the file is complete before the truncation")
            }
            Err(error) => last = Some(error),
        }
        last.is_some()
    });
    let error = last.unwrap();
    assert!(matches!(error, Error::Changed { .. } | Error::Truncated { .. }), "{error}");
    cutter.join().unwrap();
    wait_until("the truncation is reported", || {
        matches!(reader.read(0, 1), Err(Error::Truncated { .. }))
    });
}

#[test]
fn a_file_on_the_tier_with_a_writer_is_copied_with_a_note() {
    let clip = clip(10_000);
    let _writer = File::options().write(true).open(&clip.path).unwrap();
    let options = ReadOptions { tier: clip.path.parent().map(Into::into), ..options(IoMode::Map) };
    let mut reader = open(&clip.path, &options).unwrap();
    let notes = reader.notes();
    assert!(notes[0].why.contains("open for writing"), "{notes:?}");
    assert_eq!(reader.notes(), [], "notes are returned once");
    assert!(reader.read(0, 10_000).unwrap().0 == &clip.bytes[..]);
}

#[test]
fn a_copy_on_the_tier_has_no_name() {
    let (clip, tier) = (clip(300_000), tempfile::tempdir().unwrap());
    let options = ReadOptions { tier: Some(tier.path().into()), ..options(IoMode::Map) };
    let mut reader = open(&clip.path, &options).unwrap();
    assert!(reader.read(0, 300_000).unwrap().0 == &clip.bytes[..]);
    assert_eq!(fs::read_dir(tier.path()).unwrap().count(), 0);
}

#[test]
fn a_file_beyond_the_budget_is_refused_with_the_room_left() {
    let clip = clip(300_000);
    let options = ReadOptions { budget: Budget::of(Some(299_999)), ..options(IoMode::Map) };
    let error = open(&clip.path, &options).err().unwrap();
    assert!(matches!(error, Error::NoRoom { bytes: 300_000, room_bytes: 299_999, .. }), "{error}");
}

#[test]
fn files_share_the_budget_and_return_their_part_when_closed() {
    let (one, other) = (clip(200_000), clip(100_000));
    let options = ReadOptions { budget: Budget::of(Some(299_999)), ..options(IoMode::Map) };
    let first = open(&one.path, &options).unwrap();
    let error = open(&other.path, &options.clone()).err().unwrap();
    assert!(matches!(error, Error::NoRoom { bytes: 100_000, room_bytes: 99_999, .. }), "{error}");
    drop(first);
    open(&other.path, &options).unwrap();
}

#[test]
fn opening_waits_for_a_file_under_a_write_lease() {
    let clip = clip(10_000);
    let mover = File::open(&clip.path).unwrap();
    lease::take(mover.as_fd(), lease::LeaseKind::Write).unwrap();
    let path = clip.path.clone();
    let opener = std::thread::spawn(move || open(&path, &options(IoMode::Blocking)));
    wait_until("the opener waits", || !lease::is_held(mover.as_fd(), lease::LeaseKind::Write));
    lease::release(mover.as_fd());
    let mut reader = opener.join().unwrap().unwrap();
    assert!(reader.read(0, 10_000).unwrap().0 == &clip.bytes[..]);
}

#[test]
fn injected_latency_grows_with_the_pages_of_a_read() {
    let clip = clip(100_000);
    let options = ReadOptions { inject_ns_per_4k: 200_000, ..options(IoMode::Map) };
    let mut reader = open(&clip.path, &options).unwrap();
    let begin = std::time::Instant::now();
    reader.read(0, 40_960).unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(2), "ten pages of 0.2 ms");
}

#[test]
fn only_regular_files_are_opened() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    for options in all_options() {
        for path in [directory.path(), pipe.as_path(), Path::new("/dev/null")] {
            let error = open(path, &options).err().unwrap();
            assert!(matches!(error, Error::NotAFile { .. }), "{:?}: {error}", options.mode);
        }
        let error = open(Path::new("/nowhere/clip"), &options).err().unwrap();
        assert!(error.to_string().contains("/nowhere/clip"), "{error}");
    }
}

#[test]
fn the_helper_serves_sequential_reads_and_follows_a_seek() {
    let clip = clip(4_000_000);
    let mut reader = nowait::Nowait::open(&clip.path, &small_ring()).unwrap();
    let count = |reader: &mut nowait::Nowait, offset: usize| {
        let (bytes, served) = reader.read(offset as u64, 40_000).unwrap();
        assert!(bytes == &clip.bytes[offset..offset + 40_000], "at {offset}");
        served
    };
    assert_eq!(count(&mut reader, 0), Served::Ahead, "opening waits for the first read-ahead");
    for from in [40_000, 2_000_000, 1_000_000] {
        // The number of reads until the helper is ready depends on the disk, so only the timeout
        // limits it.
        let mut at = from;
        wait_until("the helper is ready", || {
            let served = count(&mut reader, at);
            at += 40_000;
            std::thread::sleep(Duration::from_millis(60));
            served == Served::Ahead
        });
        assert!(at <= from + 30 * 40_000, "the helper was ready within 30 reads, at {at}");
    }
}

#[test]
fn a_file_smaller_than_the_ring_is_held_entirely() {
    let clip = clip(50_000);
    let mut reader = nowait::Nowait::open(&clip.path, &options(IoMode::Nowait)).unwrap();
    wait_until("the whole file is in memory", || {
        reader.read(49_999, 1).is_ok_and(|(_, served)| served == Served::Ahead)
    });
    for offset in [0, 49_000, 7, 20_000, 0, 49_999] {
        let (bytes, served) = reader.read(offset as u64, 1_000).unwrap();
        assert!(bytes == &clip.bytes[offset..clip.bytes.len().min(offset + 1_000)]);
        assert_eq!(served, Served::Ahead, "served at any offset");
    }
}

#[test]
fn rings_without_device_polling_make_a_note() {
    let clip = clip(100_000);
    let mut reader = uring::Uring::open(&clip.path, &options(IoMode::Uring)).unwrap();
    let (_, served) = reader.read(0, 4_096).unwrap();
    assert!(matches!(served, Served::Polled | Served::Slept | Served::Blocked));
    let asked = std::fs::read_to_string("/sys/block/vda/queue/io_poll").unwrap_or_default();
    if asked.trim() == "0" {
        let notes = reader.notes();
        assert!(
            notes.iter().any(|note| note.what.contains("IOPOLL")
                || note.what.contains("O_DIRECT")
                || note.what.contains("io_uring")),
            "{notes:?}"
        );
    }
}

#[test]
fn reads_longer_than_expected_succeed() {
    let clip = clip(3_000_000);
    for options in all_options() {
        let options = ReadOptions { read_bytes: Some(1_000), ..options };
        let mut reader = open(&clip.path, &options).unwrap();
        for length in [1_000, 2_000_000, 3_000_000, 10] {
            assert!(
                reader.read(0, length).unwrap().0 == &clip.bytes[..length],
                "{:?}",
                options.mode
            );
        }
    }
}
