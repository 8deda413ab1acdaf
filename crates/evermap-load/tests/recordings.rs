//! What recordings promise: that they tell how an image was used, and make the next load better.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::path::PathBuf;

use evermap_load::{Error, Loader, Method, Order, Recording, RecordingUse, Touch};

const WINDOW_BYTES: usize = 64 << 10;

struct Ground {
    _directory: tempfile::TempDir,
    path: PathBuf,
    bytes: Vec<u8>,
}

fn ground(bytes: usize) -> Ground {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    let bytes: Vec<u8> = (0..bytes).map(|at| (at / 4096 * 7 + at) as u8).collect();
    std::fs::write(&path, &bytes).unwrap();
    Ground { _directory: directory, path, bytes }
}

/// The recording of a use; none where no userfaultfd is to be had, which is said.
fn recorded(loader: Loader, use_it: impl FnOnce(&mut evermap_load::Image)) -> Option<Recording> {
    let mut image = loader.record().load().unwrap();
    if let Some(RecordingUse::NotMade(why)) = image.report().recording {
        println!("skipped: nothing can be recorded here: {why}");
        return None;
    }
    use_it(&mut image);
    image.recording()
}

#[test]
fn a_recording_tells_what_was_touched_in_which_order_and_what_was_written() {
    let ground = ground(5 << 20);
    let Some(recording) = recorded(Loader::open(&ground.path), |image| {
        assert_eq!(image[3 << 20], ground.bytes[3 << 20]);
        image[17] ^= 1;
        assert_eq!(image[(3 << 20) + 5], ground.bytes[(3 << 20) + 5], "not noted twice");
        image[4 << 20] ^= 1;
        assert_eq!(image[17], ground.bytes[17] ^ 1);
    }) else {
        return;
    };
    let touch = |at: usize, is_write| Touch { window: (at / WINDOW_BYTES) as u32, is_write };
    let expected = [touch(3 << 20, false), touch(17, true), touch(4 << 20, true)];
    assert_eq!(recording.touches(), expected);
    // Two pages; before Linux 6.7 the windows of two.
    let pages = recording.written_share() * (5 << 20) as f64 / 4096.0;
    assert!(pages == 2.0 || pages == 32.0, "{pages}");
    assert_eq!(std::fs::read(&ground.path).unwrap(), ground.bytes, "the file is as it was");
}

#[test]
fn all_bytes_of_a_recorded_image_are_the_file_s_and_behind_them_is_nothing() {
    for bytes in [0, 1, 4095, 4097, WINDOW_BYTES, WINDOW_BYTES + 1, (2 << 20) + 5] {
        let ground = ground(bytes);
        recorded(Loader::open(&ground.path), |image| {
            assert!(**image == ground.bytes[..], "{bytes}");
            // The last window is counted a moment after it can be seen.
            while image.progress().loaded_bytes < bytes as u64 {
                std::thread::yield_now();
            }
        });
        let from = bytes / 3;
        recorded(Loader::open(&ground.path).range(from as u64..), |image| {
            assert!(**image == ground.bytes[from..], "{bytes}");
        });
    }
}

#[test]
fn what_is_ensured_can_be_given_to_system_calls_and_is_noted() {
    let ground = ground(1 << 20);
    let Some(recording) = recorded(Loader::open(&ground.path), |image| {
        let part = image.get(100_000..300_000).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(part).unwrap();
        assert_eq!(part, &ground.bytes[100_000..300_000]);
        assert!(matches!(image.ensure(0..(1 << 20) + 1), Err(Error::NoSuchRange { .. })));
    }) else {
        return;
    };
    assert_eq!(recording.touches().len(), 4);
    assert_eq!(recording.order(), Order::Sequential);
}

#[test]
fn threads_that_touch_one_window_at_once_all_see_its_bytes() {
    let ground = ground(4 << 20);
    recorded(Loader::open(&ground.path), |image| {
        let (image, bytes) = (&*image, &ground.bytes);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(move || assert!(image[..] == bytes[..]));
            }
        });
    });
}

#[test]
fn a_replayed_load_knows_what_will_be_done() {
    let ground = ground(32 << 20);
    let Some(recording) = recorded(Loader::open(&ground.path), |image| {
        assert_eq!(image[9 << 20], ground.bytes[9 << 20]);
    }) else {
        return;
    };
    // SAFETY: nobody changes the file.
    let loader = || unsafe { Loader::open(&ground.path).may_map() };
    let method = |loader: Loader| loader.probe().unwrap().1[0].method;
    assert_ne!(method(loader()), Method::MmapHuge, "all may be written");
    assert_eq!(method(loader().replay(&recording)), Method::MmapHuge, "next to nothing is");
    assert_ne!(method(loader().replay(&recording).touched(1.0).written(1.0)), Method::MmapHuge);
    for method in [Method::TakeoverOnDemand, Method::MmapHuge, Method::Takeover] {
        let image = match loader().replay(&recording).method(method).load() {
            Err(Error::Refused { why, .. }) => {
                println!("skipped: {method}: {why}");
                continue;
            }
            other => other.unwrap(),
        };
        assert!(image[..] == ground.bytes[..]);
        assert_eq!(image.report().recording, Some(RecordingUse::Replayed));
    }
}

#[test]
fn a_recording_of_another_version_is_ignored_and_the_report_says_so() {
    let ground = ground(1 << 20);
    let Some(recording) = recorded(Loader::open(&ground.path), |image| {
        assert_eq!(image[0], ground.bytes[0]);
    }) else {
        return;
    };
    let other_range = Loader::open(&ground.path).range(4096..).replay(&recording).load().unwrap();
    assert!(matches!(other_range.report().recording, Some(RecordingUse::Ignored(_))));
    std::fs::write(&ground.path, [1; 5000]).unwrap();
    let image = Loader::open(&ground.path).replay(&recording).load().unwrap();
    assert!(
        matches!(image.report().recording, Some(RecordingUse::Ignored(why)) if why.contains("changed"))
    );
    assert!(image.why().contains("changed"), "{}", image.why());
}

#[test]
fn a_child_that_is_forked_has_all_bytes_and_no_zeros() {
    let ground = ground(3 << 20);
    recorded(Loader::open(&ground.path), |image| {
        assert_eq!(image[5], ground.bytes[5]);
        // SAFETY: the child calls nothing but `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_right = image[..] == ground.bytes[..];
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        let mut status = 0;
        // SAFETY: a child of this process, and a word of this function's.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0);
        // The recording ended there.
        assert_eq!(image.recording().unwrap().touches().len(), 1);
        assert!(image[..] == ground.bytes[..]);
    });
}

#[test]
#[cfg(feature = "files")]
fn a_file_of_a_recording_is_made_by_the_first_load_and_used_by_the_next() {
    let ground = ground(1 << 20);
    let path = ground.path.with_extension("use");
    let load = || Loader::open(&ground.path).recording(&path).load().unwrap();
    let image = load();
    if let Some(RecordingUse::NotMade(why)) = image.report().recording {
        return println!("skipped: nothing can be recorded here: {why}");
    }
    assert_eq!(image[70_000], ground.bytes[70_000]);
    drop(image);
    assert_eq!(Recording::read(&path).unwrap().touches().len(), 1);
    assert_eq!(load().report().recording, Some(RecordingUse::Replayed));
    // Another version is recorded anew.
    std::fs::write(&ground.path, [1; 300_000]).unwrap();
    assert_eq!(load().report().recording, Some(RecordingUse::Made));
    assert_eq!(load().report().recording, Some(RecordingUse::Replayed));
    // What is no recording is not written over.
    std::fs::write(&path, "precious").unwrap();
    let error = Loader::open(&ground.path).recording(&path).load().unwrap_err();
    assert!(matches!(error, Error::Malformed { .. }), "{error:?}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}
