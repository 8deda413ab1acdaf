//! Temporary files and directories of commands that fail or are killed are removed at once, or by
//! the next command of the same kind.
#![allow(clippy::unwrap_used)]

mod common;

use std::process::Command;
use std::time::Duration;

use common::{Place, Ran, set_age};

/// Maximum number of descriptors of a command here, so it fails at each call that needs one more.
const DESCRIPTORS_MAX: usize = 40;

fn names(place: &Place) -> Vec<String> {
    let entries = std::fs::read_dir(place.path("")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name != ".local");
    names.sort();
    names
}

#[test]
fn a_backup_a_restore_or_an_export_without_descriptors_leaves_nothing() {
    let place = Place::in_memory();
    let ran = place.run_with_input(&["parse", "-", "--name", "page"], b"<p>one");
    assert_eq!(ran.code, 0, "{ran:?}");
    place.ok(&["backup", "backup"]);
    let cases: [&[&str]; 3] =
        [&["backup", "made"], &["restore", "backup", "--force"], &["export", "page", "made"]];
    for case in cases {
        let (mut failed, mut succeeded) = (0, false);
        for descriptors in 4..DESCRIPTORS_MAX {
            let plain = place.command(case);
            let mut command = Command::new("sh");
            command.args(["-c", "ulimit -n $0 && exec \"$@\""]).arg(descriptors.to_string());
            command.arg(plain.get_program()).args(plain.get_args());
            command.env_clear().env("HOME", place.path("")).current_dir(place.path(""));
            let ran = Ran::of(command.output().unwrap());
            assert!(ran.code >= 0 && !ran.err.contains("panicked"), "{case:?}: {ran:?}");
            succeeded = ran.code == 0;
            let made = place.path("made");
            if succeeded && made.is_dir() {
                std::fs::remove_dir_all(&made).unwrap();
            } else if succeeded && made.exists() {
                std::fs::remove_file(&made).unwrap();
            }
            failed += usize::from(!succeeded);
            assert_eq!(names(&place), ["backup", "store"], "{case:?}, {descriptors}: {ran:?}");
            assert_eq!(place.run(&["check"]).code, 0, "{case:?}, {descriptors}");
        }
        assert!(failed > 0 && succeeded, "{case:?}: {failed} failed");
    }
}

#[test]
fn the_next_export_removes_what_a_killed_one_left_and_nothing_else() {
    let place = Place::in_memory();
    let ran = place.run_with_input(&["parse", "-", "--name", "page"], b"<p>one");
    assert_eq!(ran.code, 0, "{ran:?}");
    let (dead, young, live) =
        (".evermap-export-dead", ".evermap-export-young", ".evermap-export-live");
    for name in [dead, young, live, "other"] {
        place.file(name, "part of an export");
    }
    set_age(&place.path(dead), 120);
    set_age(&place.path(live), 120);
    let writing = std::fs::File::open(place.path(live)).unwrap();
    writing.lock_shared().unwrap();
    std::fs::File::options()
        .write(true)
        .open(place.path(young))
        .unwrap()
        .set_modified(std::time::SystemTime::now() - Duration::from_secs(1))
        .unwrap();
    place.ok(&["export", "page", "exported"]);
    assert_eq!(names(&place), [live, young, "exported", "other", "store"]);
    drop(writing);
    set_age(&place.path(young), 120);
    place.ok(&["export", "page", "exported", "--force"]);
    assert_eq!(names(&place), ["exported", "other", "store"]);
}

#[test]
fn the_next_backup_or_restore_to_the_same_place_removes_what_a_killed_one_left() {
    let place = Place::in_memory();
    let ran = place.run_with_input(&["parse", "-", "--name", "page"], b"<p>one");
    assert_eq!(ran.code, 0, "{ran:?}");
    let kill = |name: &str| {
        let left = place.path(&format!(".{name}.partial-20260131T235959Z-0"));
        std::fs::create_dir_all(left.join("objects")).unwrap();
        std::fs::write(left.join("addresses"), "").unwrap();
        std::fs::write(left.join("objects/part"), "part").unwrap();
    };
    for name in ["backup", "other", "store"] {
        kill(name);
    }
    place.ok(&["backup", "backup"]);
    let left = |name| format!(".{name}.partial-20260131T235959Z-0");
    let (other, store) = (left("other"), left("store"));
    assert_eq!(names(&place), [&*other, &store, "backup", "store"]);
    place.ok(&["restore", "backup", "--force"]);
    assert_eq!(names(&place), [&*other, "backup", "store"]);
}
