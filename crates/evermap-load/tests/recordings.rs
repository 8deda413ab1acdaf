//! Guarantees of recordings: they reflect an image's use, and improve the next load.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::path::PathBuf;

use evermap_load::{Error, Loader, Method, Order, Recording, RecordingUse, Touch};

const WINDOW_BYTES: usize = 64 << 10;

struct TestFile {
    _directory: tempfile::TempDir,
    path: PathBuf,
    bytes: Vec<u8>,
}

fn test_file(bytes: usize) -> TestFile {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    let bytes: Vec<u8> = (0..bytes).map(|at| (at / 4096 * 7 + at) as u8).collect();
    std::fs::write(&path, &bytes).unwrap();
    TestFile { _directory: directory, path, bytes }
}

/// Records a use. Prints a notice and returns `None` if userfaultfd is not available.
fn recorded(loader: Loader, use_it: impl FnOnce(&mut evermap_load::Image)) -> Option<Recording> {
    let mut image = loader.record().load().unwrap();
    if let Some(RecordingUse::NotMade(why)) = image.report().recording {
        println!("skipped: recording is not possible: {why}");
        return None;
    }
    use_it(&mut image);
    image.recording()
}

#[test]
fn a_recording_lists_touches_in_order_and_written_bytes() {
    let file = test_file(5 << 20);
    let Some(recording) = recorded(Loader::open(&file.path), |image| {
        assert_eq!(image[3 << 20], file.bytes[3 << 20]);
        image[17] ^= 1;
        assert_eq!(image[(3 << 20) + 5], file.bytes[(3 << 20) + 5], "recorded once");
        image[4 << 20] ^= 1;
        assert_eq!(image[17], file.bytes[17] ^ 1);
    }) else {
        return;
    };
    let touch = |at: usize, is_write| Touch { window: (at / WINDOW_BYTES) as u32, is_write };
    let expected = [touch(3 << 20, false), touch(17, true), touch(4 << 20, true)];
    assert_eq!(recording.touches(), expected);
    // Two pages; before Linux 6.7, the windows of two pages.
    let pages = recording.written_share() * (5 << 20) as f64 / 4096.0;
    assert!(pages == 2.0 || pages == 32.0, "{pages}");
    assert_eq!(std::fs::read(&file.path).unwrap(), file.bytes, "the file is unchanged");
}

#[test]
fn a_recorded_image_has_the_files_bytes_followed_by_zeros() {
    for bytes in [0, 1, 4095, 4097, WINDOW_BYTES, WINDOW_BYTES + 1, (2 << 20) + 5] {
        let file = test_file(bytes);
        recorded(Loader::open(&file.path), |image| {
            assert!(**image == file.bytes[..], "{bytes}");
            // The last window is counted a moment after it becomes visible.
            while image.progress().loaded_bytes < bytes as u64 {
                std::thread::yield_now();
            }
        });
        let from = bytes / 3;
        recorded(Loader::open(&file.path).range(from as u64..), |image| {
            assert!(**image == file.bytes[from..], "{bytes}");
        });
    }
}

#[test]
fn ensured_bytes_work_in_system_calls_and_are_recorded() {
    let file = test_file(1 << 20);
    let Some(recording) = recorded(Loader::open(&file.path), |image| {
        let part = image.get(100_000..300_000).unwrap();
        let mut copy = tempfile::tempfile().unwrap();
        copy.write_all(part).unwrap();
        assert_eq!(part, &file.bytes[100_000..300_000]);
        assert!(matches!(image.ensure(0..(1 << 20) + 1), Err(Error::NoSuchRange { .. })));
    }) else {
        return;
    };
    assert_eq!(recording.touches().len(), 4);
    assert_eq!(recording.order(), Order::Sequential);
}

#[test]
fn threads_that_access_one_window_at_once_all_see_its_bytes() {
    let file = test_file(4 << 20);
    recorded(Loader::open(&file.path), |image| {
        let (image, bytes) = (&*image, &file.bytes);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(move || assert!(image[..] == bytes[..]));
            }
        });
    });
}

#[test]
fn a_replayed_load_uses_the_recorded_shares() {
    let file = test_file(32 << 20);
    let Some(recording) = recorded(Loader::open(&file.path), |image| {
        assert_eq!(image[9 << 20], file.bytes[9 << 20]);
    }) else {
        return;
    };
    // SAFETY: the file does not change.
    let loader = || unsafe { Loader::open(&file.path).may_map() };
    let method = |loader: Loader| loader.probe().unwrap().1[0].method;
    assert_ne!(method(loader()), Method::MmapHuge, "everything may be written");
    assert_eq!(method(loader().replay(&recording)), Method::MmapHuge, "hardly anything is written");
    assert_ne!(method(loader().replay(&recording).touched(1.0).written(1.0)), Method::MmapHuge);
    for method in [Method::TakeoverOnDemand, Method::MmapHuge, Method::Takeover] {
        let image = match loader().replay(&recording).method(method).load() {
            Err(Error::Refused { why, .. }) => {
                println!("skipped: {method}: {why}");
                continue;
            }
            other => other.unwrap(),
        };
        assert!(image[..] == file.bytes[..]);
        assert_eq!(image.report().recording, Some(RecordingUse::Replayed));
    }
}

#[test]
fn a_recording_of_another_version_is_ignored_and_reported() {
    let file = test_file(1 << 20);
    let Some(recording) = recorded(Loader::open(&file.path), |image| {
        assert_eq!(image[0], file.bytes[0]);
    }) else {
        return;
    };
    let other_range = Loader::open(&file.path).range(4096..).replay(&recording).load().unwrap();
    assert!(matches!(other_range.report().recording, Some(RecordingUse::Ignored(_))));
    std::fs::write(&file.path, [1; 5000]).unwrap();
    let image = Loader::open(&file.path).replay(&recording).load().unwrap();
    assert!(
        matches!(image.report().recording, Some(RecordingUse::Ignored(why)) if why.contains("changed"))
    );
    assert!(image.why().contains("changed"), "{}", image.why());
}

#[test]
fn a_forked_child_has_all_bytes() {
    let file = test_file(3 << 20);
    recorded(Loader::open(&file.path), |image| {
        assert_eq!(image[5], file.bytes[5]);
        // SAFETY: the child calls only `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_right = image[..] == file.bytes[..];
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        let mut status = 0;
        // SAFETY: waits for a child of this process, with a local variable.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0);
        // The fork ended the recording.
        assert_eq!(image.recording().unwrap().touches().len(), 1);
        assert!(image[..] == file.bytes[..]);
    });
}

#[test]
#[cfg(feature = "files")]
fn the_first_load_writes_a_recording_and_the_next_uses_it() {
    let file = test_file(1 << 20);
    let path = file.path.with_extension("use");
    let load = || Loader::open(&file.path).recording(&path).load().unwrap();
    let image = load();
    if let Some(RecordingUse::NotMade(why)) = image.report().recording {
        return println!("skipped: recording is not possible: {why}");
    }
    assert_eq!(image[70_000], file.bytes[70_000]);
    drop(image);
    assert_eq!(Recording::read(&path).unwrap().touches().len(), 1);
    assert_eq!(load().report().recording, Some(RecordingUse::Replayed));
    // Another version is recorded again.
    std::fs::write(&file.path, [1; 300_000]).unwrap();
    assert_eq!(load().report().recording, Some(RecordingUse::Made));
    assert_eq!(load().report().recording, Some(RecordingUse::Replayed));
    // An invalid file is not overwritten.
    std::fs::write(&path, "precious").unwrap();
    let error = Loader::open(&file.path).recording(&path).load().unwrap_err();
    assert!(matches!(error, Error::Malformed { .. }), "{error:?}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}
