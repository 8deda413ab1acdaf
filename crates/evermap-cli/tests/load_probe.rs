//! `load probe`: output for files, which it does not change.

#![allow(clippy::unwrap_used)]

mod common;

use common::Place;

const BYTES: usize = (3 << 20) + 1234;

fn place() -> Place {
    let place = Place::new();
    place.file("data", vec![7; BYTES]);
    place.file("short", "text");
    place
}

#[test]
fn probe_prints_the_methods_and_the_reasons() {
    let place = place();
    let stdout = place.ok(&["load", "probe", "data"]);
    for part in
        ["data: 3.15 MB", "cached", "best", "else      read: the fallback that always works"]
    {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
    assert!(!stdout.contains("loaded"), "{stdout}");
    let stdout = place.ok(&["load", "probe", "data", "--method", "read-huge", "--load"]);
    for part in ["read-huge: requested by name", "loaded    by read-huge", "private", "faults"] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
}

#[test]
fn several_files_are_loaded_together_and_reported_one_by_one() {
    let place = place();
    let json = place.ok(&["load", "probe", "data", "short", "--load", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    let paths: Vec<&str> =
        report.as_array().unwrap().iter().map(|report| report["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["data", "short"]);
    assert_eq!(report[0]["report"]["bytes"], BYTES);
    assert_eq!(report[1]["report"]["choice"]["method"], "read");
    let only: serde_json::Value =
        serde_json::from_str(&place.ok(&["load", "probe", "short", "--json"])).unwrap();
    assert_eq!((&only["path"], &only["report"]), (&"short".into(), &serde_json::Value::Null));
}

#[test]
fn rules_apply_unless_options_override_them() {
    let place = place();
    place.file("rules.toml", "[[file]]\npattern = 'da*'\nmethod = 'read'\nthreads = 1\n");
    let rules = ["load", "probe", "data", "--rules", "rules.toml"];
    assert!(place.ok(&rules).contains("best      read: requested by name"));
    let stdout = place.ok(&[&rules[..], &["--method", "read-huge"]].concat());
    assert!(stdout.contains("best      read-huge"), "{stdout}");
    let stdout = place.ok(&["load", "probe", "short", "--rules", "rules.toml"]);
    assert!(stdout.contains("the file is short"), "{stdout}");
}

#[test]
fn wrong_usage_is_reported_with_a_remedy() {
    let place = place();
    place.file("rules.toml", "[[file]]\npatern = '*'\n");
    place.fails(8, "patern", &["load", "probe", "data", "--rules", "rules.toml"]);
    place.fails(2, "available: read,", &["load", "probe", "data", "--method", "mnap"]);
    place.fails(2, "FILE", &["load", "probe"]);
    let missing = place.run(&["load", "probe", "short", "missing", "--load"]);
    assert!(missing.code != 0 && missing.err.contains("missing"), "{missing:?}");
}
