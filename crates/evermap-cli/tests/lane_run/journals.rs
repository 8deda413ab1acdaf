//! What `status` tells of lanes, and `undo` of what was left behind.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use crate::looks::{is_alive, is_ordinary, kill, send};
use crate::place::{LEND, Place, SLEEP};

#[test]
fn a_damaged_journal_is_named_and_the_others_are_undone() {
    let place = Place::new();
    let mut lane = place.start(LEND, &SLEEP);
    send(lane.child.id(), Signal::STOP);
    kill(lane.guardian);
    lane.child.kill().unwrap();
    lane.child.wait().unwrap();
    let damaged = place.path("state/lanes/0-0-0.json");
    fs::write(&damaged, "{\"format\": 1, \"id\"").unwrap();
    let undone = place.run(&["undo"]);
    assert_eq!(undone.code, 5, "{undone:?}");
    assert!(undone.err.contains("0-0-0.json") && undone.out.contains("undone"), "{undone:?}");
    assert_eq!(place.journals(), std::slice::from_ref(&damaged));
    assert!(is_ordinary(lane.program));
    // A lane is made all the same, and says so.
    let (ran, _) = place.ended(LEND, &["true"]);
    assert!(ran.code == 0 && ran.err.contains("0-0-0.json"), "{ran:?}");
    fs::remove_file(damaged).unwrap();
}

#[test]
fn status_tells_of_a_lane_that_runs() {
    let place = Place::new();
    assert_eq!(place.run(&["status"]).out, "no lanes\n");
    let lane = place.start(LEND, &SLEEP);
    let told = place.run(&["status"]);
    assert!(
        told.out.contains("running") && told.out.contains(&lane.program.to_string()),
        "{told:?}"
    );
    let told = place.status();
    let one = &told["lanes"][0];
    assert_eq!(one["program_pid"], lane.program);
    assert_eq!(one["guardian_pid"], lane.guardian);
    assert_eq!((&one["is_running"], &told["claimed"][0]), (&Value::Bool(true), &one["core"]));
    let undone = place.run(&["undo"]);
    assert!(undone.out.contains("1 lanes are running"), "{undone:?}");
    assert!(is_alive(lane.guardian) && place.journals().len() == 1);
}

#[test]
fn undo_looks_at_files_on_their_way_to_a_tier_too() {
    let place = Place::new();
    let journal = place.path("journal");
    let undo =
        |place: &Place| place.run(&["undo", "--json", "--journal", journal.to_str().unwrap()]);
    let told: Value = serde_json::from_str(&undo(&place).out).unwrap();
    assert_eq!(told["returned"], Value::Array(Vec::new()));
    fs::create_dir(&journal).unwrap();
    fs::set_permissions(&journal, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let slot = "0123456789abcdef0123456789abcdef";
    fs::create_dir(journal.join(slot)).unwrap();
    let damaged = journal.join(slot).join("record");
    fs::write(&damaged, "{\"version\": 1, \"pa").unwrap();
    let ran = undo(&place);
    assert!(ran.code != 0 && ran.out.contains(slot), "{ran:?}");
    assert!(damaged.exists(), "what makes no sense is kept");
}

#[test]
fn what_is_undone_of_lanes_is_told_also_where_files_cannot_be_looked_at() {
    let place = Place::new();
    let mut lane = place.start(LEND, &SLEEP);
    send(lane.child.id(), Signal::STOP);
    kill(lane.guardian);
    lane.child.kill().unwrap();
    lane.child.wait().unwrap();
    // Where others may write, nothing is taken for a journal.
    let journal = place.path("journal");
    fs::create_dir(&journal).unwrap();
    fs::set_permissions(&journal, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let ran = place.run(&["undo", "--journal", journal.to_str().unwrap()]);
    assert_ne!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("sleep 1000") && ran.out.contains("undone"), "{ran:?}");
    let ran = place.run(&["undo", "--journal", journal.to_str().unwrap()]);
    assert!(ran.code != 0 && !ran.out.contains("nothing was left behind"), "{ran:?}");
}
