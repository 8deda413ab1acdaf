//! Output of `status` for lanes, and of `undo` for leftovers.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use crate::place::{LEND, Place, SLEEP};
use crate::system::{is_alive, is_ordinary, kill, send};

#[test]
fn a_damaged_journal_is_reported_and_the_other_lanes_are_undone() {
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
    // A new lane can still be made, and reports the damaged journal.
    let (ran, _) = place.ended(LEND, &["true"]);
    assert!(ran.code == 0 && ran.err.contains("0-0-0.json"), "{ran:?}");
    fs::remove_file(damaged).unwrap();
}

#[test]
fn status_shows_a_running_lane() {
    let place = Place::new();
    assert_eq!(place.run(&["status"]).out, "no lanes\n");
    let lane = place.start(LEND, &SLEEP);
    let status = place.run(&["status"]);
    assert!(
        status.out.contains("running") && status.out.contains(&lane.program.to_string()),
        "{status:?}"
    );
    let status = place.status();
    let one = &status["lanes"][0];
    assert_eq!(one["program_pid"], lane.program);
    assert_eq!(one["guardian_pid"], lane.guardian);
    assert_eq!((&one["is_running"], &status["claimed"][0]), (&Value::Bool(true), &one["core"]));
    let undone = place.run(&["undo"]);
    assert!(undone.out.contains("1 lanes are running"), "{undone:?}");
    assert!(is_alive(lane.guardian) && place.journals().len() == 1);
}

#[test]
fn undo_also_checks_interrupted_moves_to_a_tier() {
    let place = Place::new();
    let journal = place.path("journal");
    let undo =
        |place: &Place| place.run(&["undo", "--json", "--journal", journal.to_str().unwrap()]);
    let report: Value = serde_json::from_str(&undo(&place).out).unwrap();
    assert_eq!(report["returned"], Value::Array(Vec::new()));
    fs::create_dir(&journal).unwrap();
    fs::set_permissions(&journal, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let slot = "0123456789abcdef0123456789abcdef";
    fs::create_dir(journal.join(slot)).unwrap();
    let damaged = journal.join(slot).join("record");
    fs::write(&damaged, "{\"version\": 1, \"pa").unwrap();
    let ran = undo(&place);
    assert!(ran.code != 0 && ran.out.contains(slot), "{ran:?}");
    assert!(damaged.exists(), "the damaged record was removed");
}

#[test]
fn undo_reports_undone_lanes_even_if_the_journal_of_files_is_refused() {
    let place = Place::new();
    let mut lane = place.start(LEND, &SLEEP);
    send(lane.child.id(), Signal::STOP);
    kill(lane.guardian);
    lane.child.kill().unwrap();
    lane.child.wait().unwrap();
    // A directory that others may write to is not accepted as a journal.
    let journal = place.path("journal");
    fs::create_dir(&journal).unwrap();
    fs::set_permissions(&journal, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let ran = place.run(&["undo", "--journal", journal.to_str().unwrap()]);
    assert_ne!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("sleep 1000") && ran.out.contains("undone"), "{ran:?}");
    let ran = place.run(&["undo", "--journal", journal.to_str().unwrap()]);
    assert!(ran.code != 0 && !ran.out.contains("nothing was left behind"), "{ran:?}");
}
