//! A hold that would affect groups of other programs is refused, and those groups are not changed.

use std::fs;
use std::path::PathBuf;

use crate::place::Place;
use crate::system::{CPUSETS, cores};

#[test]
fn a_hold_whose_group_names_are_taken_is_refused_and_those_groups_stay() {
    let Some(place) = Place::alone() else { return };
    let core = cores()[0];
    let foreign = PathBuf::from(format!("{CPUSETS}/evermap-lane-{core}"));
    fs::create_dir(&foreign).unwrap();
    let policy = format!("[app]\nshare = \"hold\"\ncore = {core}\n");
    let (ran, _) = place.ended(&policy, &["true"]);
    let is_there = foreign.is_dir();
    let status = place.run(&["status"]);
    fs::remove_dir(&foreign).unwrap();
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(ran.err.contains("already") && ran.err.contains("lane undo"), "{ran:?}");
    assert!(is_there && status.out.contains("group of an unknown lane"), "{status:?}");
    assert!(place.is_clean());
}

#[test]
fn a_hold_of_a_core_in_another_cpuset_is_refused_and_that_cpuset_stays() {
    let Some(place) = Place::alone() else { return };
    let core = cores()[0];
    let foreign = PathBuf::from(format!("{CPUSETS}/lane-test-of-others"));
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("cpuset.cpus"), core.to_string()).unwrap();
    let policy = format!("[app]\nshare = \"hold\"\ncore = {core}\n");
    let (ran, _) = place.ended(&policy, &["true"]);
    let cpus = fs::read_to_string(foreign.join("cpuset.cpus")).unwrap();
    fs::remove_dir(&foreign).unwrap();
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(ran.err.contains("lane-test-of-others"), "{ran:?}");
    assert_eq!(cpus.trim(), core.to_string());
    assert!(place.is_clean());
}
