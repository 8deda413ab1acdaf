//! `evermap lane place`: output and exit codes.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn place(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_evermap"));
    command.args(["lane", "place"]).args(arguments).current_dir(directory);
    command.env("XDG_STATE_HOME", directory).env("HOME", directory).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn files_are_planned_placed_verified_and_moved_back() {
    let Ok(tier) = tempfile::tempdir_in("/dev/shm") else {
        return eprintln!("skipped: no /dev/shm");
    };
    let directory = tempfile::tempdir().unwrap();
    let (at, tier) = (directory.path(), tier.path().to_str().unwrap());
    fs::write(at.join("a.mkv"), "first").unwrap();
    fs::write(at.join("b.mkv"), "second").unwrap();
    fs::write(at.join("policy.toml"), format!("[tier]\nfiles = [\"*.mkv\"]\npath = \"{tier}\"\n"))
        .unwrap();

    let planned = place(at, &["plan", "--policy", "policy.toml", "--json"]);
    let plan: serde_json::Value = serde_json::from_slice(&planned.stdout).unwrap();
    assert_eq!(plan["files"].as_array().unwrap().len(), 2, "{plan}");
    assert_eq!(plan["tier"]["kind"], "memory");
    assert_eq!(fs::read_dir(tier).unwrap().count(), 0, "a plan changed the tier");

    let placed = place(at, &["apply", "--policy", "policy.toml", "--json"]);
    assert!(placed.status.success(), "{}", text(&placed.stderr));
    for line in text(&placed.stdout).lines() {
        let report: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(report["done"], "placed");
        let copy = fs::read(report["copy"].as_str().unwrap()).unwrap();
        assert_eq!(copy, fs::read(report["path"].as_str().unwrap()).unwrap());
    }

    let on_tier = format!("{tier}/a.mkv");
    fs::write(&on_tier, "there").unwrap();
    let there = place(at, &["apply", "--tier", tier, &on_tier]);
    assert!(there.status.success(), "an existing copy is an error: {}", text(&there.stderr));

    let looked = place(at, &["verify", "--tier", tier, "--journal", "journal"]);
    assert!(looked.status.success() && text(&looked.stdout).matches("sound").count() == 2);
    fs::write(at.join("a.mkv"), "changed").unwrap();
    let looked = place(at, &["verify", "--tier", tier, "--journal", "journal"]);
    assert!(looked.status.success() && text(&looked.stdout).contains("stale"), "{looked:?}");

    let back = place(at, &["back", "--tier", tier, "--journal", "journal", "b.mkv"]);
    assert!(back.status.success(), "{}", text(&back.stderr));
    let again = place(at, &["back", "--tier", tier, "--journal", "journal", "b.mkv"]);
    assert_eq!(again.status.code(), Some(3), "{}", text(&again.stderr));
    assert!(text(&again.stderr).contains("is not placed"));
    assert!(place(at, &["back", "--tier", tier, "--journal", "journal"]).status.success());
    assert_eq!(text(&place(at, &["verify", "--tier", tier, "--journal", "journal"]).stdout), "");
}

#[test]
fn damage_is_5() {
    let Ok(tier) = tempfile::tempdir_in("/dev/shm") else {
        return eprintln!("skipped: no /dev/shm");
    };
    let directory = tempfile::tempdir().unwrap();
    let (at, tier) = (directory.path(), tier.path().to_str().unwrap());
    fs::write(at.join("file"), "contents").unwrap();
    let placed = place(at, &["apply", "--tier", tier, "file", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&placed.stdout).unwrap();
    fs::write(report["copy"].as_str().unwrap(), "contentz").unwrap();
    let looked = place(at, &["verify", "--tier", tier, "--journal", "journal"]);
    assert_eq!(looked.status.code(), Some(5), "{looked:?}");
    assert!(text(&looked.stdout).contains("damaged"));
}

#[test]
fn wrong_usage_is_reported_with_a_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    fs::write(at.join("file"), "contents").unwrap();
    fs::write(at.join("policy.toml"), "[tier]\nfile = 1\n").unwrap();
    for (arguments, code, words) in [
        (&["plan"][..], 2, "name files"),
        (&["plan", "--tier", "nowhere", "file"], 3, "check that the name is right"),
        (&["plan", "--policy", "policy.toml"], 8, "unknown field"),
        (&["plan", "--policy", "none.toml"], 3, "none.toml"),
        (&["apply", "--commit", "file"], 2, "--mode switch"),
        (&["apply", "none"], 3, "no file matches"),
        (&["apply", "file", "none"], 3, "no file matches"),
        (&["back", "file", "--journal", "journal"], 3, "name the tier"),
    ] {
        let refused = place(at, arguments);
        assert_eq!(refused.status.code(), Some(code), "{arguments:?}: {}", text(&refused.stderr));
        assert!(text(&refused.stderr).contains(words), "{arguments:?}: {}", text(&refused.stderr));
    }
    let switched = place(at, &["apply", "--tier", "/dev/shm", "--mode", "switch", "file"]);
    assert_eq!(switched.status.code(), Some(2), "{}", text(&switched.stderr));
    assert!(text(&switched.stderr).contains("use mode `view`"));
    assert_eq!(fs::read(at.join("file")).unwrap(), b"contents");
}

#[test]
fn copies_that_a_lane_left_in_memory_are_found_and_removed() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    fs::write(at.join("clip.mkv"), "contents").unwrap();
    let placed = place(at, &["apply", "clip.mkv"]);
    if !placed.status.success() {
        return eprintln!("skipped: no memory tier: {}", text(&placed.stderr));
    }
    let none = place(at, &["verify", "--journal", "journal"]);
    assert!(text(&none.stderr).contains("--tier /dev/shm"), "{}", text(&none.stderr));
    let file = fs::canonicalize(at.join("clip.mkv")).unwrap();
    let listed = place(at, &["verify", "--tier", "/dev/shm", "--journal", "journal"]);
    assert!(text(&listed.stdout).contains(file.to_str().unwrap()), "{}", text(&listed.stdout));
    let back = place(at, &["back", "--tier", "/dev/shm", "--journal", "journal", "clip.mkv"]);
    assert!(back.status.success(), "{}", text(&back.stderr));
    let listed = place(at, &["verify", "--tier", "/dev/shm", "--journal", "journal"]);
    assert!(!text(&listed.stdout).contains(file.to_str().unwrap()), "{}", text(&listed.stdout));
}

#[test]
fn undo_does_not_touch_a_directory_that_is_no_journal() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    fs::create_dir_all(at.join("home/Documents")).unwrap();
    fs::write(at.join("home/Documents/letter"), "dear").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_evermap"));
    command.args(["lane", "undo", "--journal", "home", "--state", "state"]).current_dir(at);
    let undone = command.output().unwrap();
    assert_eq!(fs::read(at.join("home/Documents/letter")).unwrap(), b"dear", "{undone:?}");
    assert!(undone.status.success(), "{}", text(&undone.stderr));
}

#[test]
fn a_search_without_copies_names_the_searched_directories() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    fs::create_dir(at.join("tier")).unwrap();
    for verb in ["verify", "back"] {
        let none = place(at, &[verb, "--journal", "journal"]);
        assert!(none.status.success() && none.stdout.is_empty());
        // The remedy is `--tier DIR`, or the tier in memory if it has copies.
        assert!(text(&none.stderr).contains("--tier "), "{verb}: {}", text(&none.stderr));
        let none = place(at, &[verb, "--journal", "journal", "--tier", "tier"]);
        assert!(none.status.success() && none.stdout.is_empty());
        assert!(text(&none.stderr).contains("no copies"), "{verb}: {}", text(&none.stderr));
    }
}
