//! Tests of files read by frames, and of reports.

use evermap_lane::{Access, Error, Lane};

use crate::common::*;

const MODES: [&str; 4] = ["map", "nowait", "uring", "blocking"];

fn lane(mode: &str, state: &State) -> Lane {
    enter(
        &format!(
            "[app]\nperiod_us = 1000\nshare = \"off\"\nscheduler = \"other\"\n[io]\nmode = \"{mode}\"\nlock_memory = false"
        ),
        state,
    )
}

#[test]
fn frames_read_sequentially_and_at_any_offset() {
    let (state, folder) = (state(), tempfile::tempdir().unwrap());
    let (path, contents) = make_file(folder.path(), 100_000);
    for mode in MODES {
        in_new_thread(|| {
            let mut lane = lane(mode, &state);
            let mut file = lane.open(&path).unwrap();
            let mut whole = Vec::new();
            while let Some(frame) = lane.frame().unwrap() {
                let bytes = frame.read(&mut file, 30_000).unwrap();
                whole.extend_from_slice(bytes);
                if bytes.is_empty() {
                    break;
                }
            }
            assert!(whole == contents, "{mode}");
            let frame = lane.frame().unwrap().unwrap();
            assert!(frame.read_at(&mut file, 70_000, 10).unwrap() == &contents[70_000..70_010]);
            assert_eq!(file.position(), 100_000, "the position is unchanged");
            file.seek(5);
            assert!(frame.read(&mut file, 10).unwrap() == &contents[5..15]);
            frame.end();
            let report = lane.leave();
            assert_eq!(report.reads.bytes, 100_020, "{mode}");
            assert_eq!(report.reads.named().map(|(_, count)| count).sum::<u64>(), 7, "{mode}");
            assert_eq!(report.frame_times().len() as u64, report.frames);
            assert_eq!(report.periods, report.frames + report.drops);
        });
    }
}

#[test]
fn a_looping_file_begins_again_at_its_end() {
    let (state, folder) = (state(), tempfile::tempdir().unwrap());
    let (path, contents) = make_file(folder.path(), 50_000);
    for mode in MODES {
        in_new_thread(|| {
            let mut lane = lane(mode, &state);
            let access = Access::default().looping(true).bytes_per_frame(20_000);
            let mut file = lane.open_with(&path, &access).unwrap();
            for at in [0, 20_000, 40_000, 0, 20_000, 40_000, 0] {
                let frame = lane.frame().unwrap().unwrap();
                let to = contents.len().min(at + 20_000);
                assert!(frame.read(&mut file, 20_000).unwrap() == &contents[at..to], "{mode} {at}");
            }
        });
    }
}

#[test]
fn a_truncated_file_does_not_end_the_program() {
    let (state, folder) = (state(), tempfile::tempdir().unwrap());
    for mode in ["uring", "blocking"] {
        let (path, _) = make_file(folder.path(), 100_000);
        in_new_thread(|| {
            let mut lane = lane(mode, &state);
            let mut file = lane.open(&path).unwrap();
            std::fs::write(&path, "short").unwrap();
            let frame = lane.frame().unwrap().unwrap();
            let error = frame.read_at(&mut file, 50_000, 100).unwrap_err();
            assert!(matches!(error, Error::Truncated { is_bytes: 5, .. }), "{mode}: {error}");
            frame.end();
            assert_eq!(lane.leave().frames, 1, "the lane continues");
        });
    }
}

#[test]
fn a_report_has_text_json_and_a_chart() {
    let (state, folder) = (state(), tempfile::tempdir().unwrap());
    let (path, _) = make_file(folder.path(), 50_000);
    in_new_thread(|| {
        let mut lane = lane("blocking", &state);
        let mut file = lane.open(&path).unwrap();
        for _ in 0..20 {
            let frame = lane.frame().unwrap().unwrap();
            frame.read_at(&mut file, 0, 1_000).unwrap();
        }
        let report = lane.leave();
        let text = report.to_string();
        assert!(text.contains("completion") && text.contains("20 blocked"), "{text}");
        let json = serde_json::to_string(&report).unwrap();
        let back: evermap_lane::Report = serde_json::from_str(&json).unwrap();
        // JSON may change the last bit of a time.
        assert_eq!((back.frames, back.reads, &back.applied), (20, report.reads, &report.applied));
        assert!((back.completion_ms.p99 - report.completion_ms.p99).abs() < 1e-9);
        assert!(report.svg("frames").unwrap().contains("deadline"));
        for frame in report.frame_times() {
            assert!(frame.wake_up_ms + frame.io_ms <= frame.completion_ms + 1e-9, "{frame:?}");
        }
    });
}
