//! `lane check` and `lane observe`: output and exit codes.

#![allow(clippy::unwrap_used)]

mod common;

use std::process::{Child, Command};

use common::{Place, Ran, json_lines};

/// A child process that is killed when dropped.
struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn check_reports_each_capability_and_exits_with_14_without_fifo() {
    let place = Place::new();
    place.file("clip", vec![1; 9_000]);
    let output = place.command(&["lane", "check", "--json", ".", "clip"]).output().unwrap();
    let all = json_lines(&String::from_utf8(output.stdout.clone()).unwrap());
    let able =
        |name: &str| all.iter().find(|one| one["name"] == name).unwrap()["able"].as_bool().unwrap();
    let is_possible = able("core") && able("affinity") && able("fifo");
    assert_eq!(output.status.code(), Some(if is_possible { 0 } else { 14 }));
    for name in
        ["exclusive-core", "deadline-pinned", "io-uring", "private-mounts", "state-directory"]
    {
        able(name);
    }
    for path in [".", "clip"] {
        let of_path: Vec<_> = all.iter().filter(|one| one["place"] == path).collect();
        assert!(of_path.iter().any(|one| one["name"] == "polled-reads"), "{path}: {of_path:?}");
    }
    let ran = Ran::of(place.command(&["lane", "check"]).output().unwrap());
    if !is_possible {
        ran.failed(14, "no lane with SCHED_FIFO is possible here");
    }
}

#[test]
fn check_of_a_missing_path_reports_it_and_checks_the_rest() {
    let place = Place::new();
    let output = place.command(&["lane", "check", "--json", "nowhere"]).output().unwrap();
    let all = json_lines(&String::from_utf8(output.stdout).unwrap());
    let nowhere = all.iter().find(|one| one["place"] == "nowhere").unwrap();
    assert_eq!((&nowhere["name"], &nowhere["able"]), (&"place".into(), &false.into()));
    assert!(all.len() > 10);
}

#[test]
fn observe_prints_a_policy_with_comments_on_unknowns() {
    let place = Place::new();
    let sleeper = Sleeper(Command::new("sleep").arg("60").spawn().unwrap());
    let id = sleeper.0.id().to_string();
    let stdout = place.ok(&["lane", "observe", &id, "--seconds", "1"]);
    assert!(stdout.contains("# No period: no thread woke 100 times"), "{stdout}");
    let policy: toml::Table = stdout.parse().unwrap();
    assert!(policy["app"]["match"].as_str().unwrap().contains("sleep"), "{stdout}");
    let stdout = place.ok(&["lane", "observe", &id, "--seconds", "1", "--poll", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(report["process"].to_string(), id);
    assert!(report["stanza"].as_str().unwrap().contains("[app]"));
    assert!(report["threads"][0]["source"]["polled"].is_object(), "{report}");
}

#[test]
fn observe_refuses_missing_and_ended_processes() {
    let place = Place::new();
    place.fails(3, "no process 0", &["lane", "observe", "0"]);
    place.fails(3, "no process 4194304", &["lane", "observe", "4194304"]);
    place.fails(2, "invalid value", &["lane", "observe", "mpv"]);
    place.fails(2, "invalid value", &["lane", "observe", "1", "--seconds", "0"]);
    let mut child = Command::new("true").spawn().unwrap();
    let stat = format!("/proc/{}/stat", child.id());
    while !std::fs::read_to_string(&stat).unwrap().contains(") Z ") {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    place.fails(3, "it has ended", &["lane", "observe", &child.id().to_string()]);
    child.wait().unwrap();
}
