//! What a program has in its lane, and what becomes of its end: it is started as anywhere else, and heard as anywhere else.

use std::fs;
use std::process::Command;

use rustix::process::Signal;

use crate::common::Ran;
use crate::looks::{PATIENCE, class, cores, has_fifo, send, wait_for};
use crate::place::{LEND, Place};

each_way!(a_program_has_its_core_and_its_policy_and_what_it_starts_has_neither);

fn a_program_has_its_core_and_its_policy_and_what_it_starts_has_neither(
    place: &Place,
    policy: &str,
) {
    let child = "sleep 0.3; cat /proc/self/stat; grep Cpus_allowed_list /proc/self/status";
    // The first is a process that the shell starts; the shell itself is the program.
    let script =
        format!("cat /proc/$$/stat; grep Cpus_allowed_list /proc/$$/status; sh -c '{child}'; true");
    let (ran, report) = place.ended(policy, &["sh", "-c", &script]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let lines: Vec<&str> = ran.out.lines().collect();
    let [own, own_cores, of_child, cores_of_child] = lines[..] else { panic!("{ran:?}") };
    let core = report["core"].to_string();
    assert_eq!(class(own), Some(u32::from(has_fifo())));
    assert_eq!(own_cores.split_ascii_whitespace().last(), Some(core.as_str()));
    assert_eq!(class(of_child), Some(0), "its policy is not inherited");
    let cores_of_child = cores_of_child.split_ascii_whitespace().last().unwrap();
    assert_ne!(cores_of_child, core, "nor is its core");
    assert!(place.is_clean());
}

#[test]
fn what_a_program_without_a_core_starts_has_its_timers_as_before() {
    let place = Place::new();
    let before = fs::read_to_string("/proc/self/timerslack_ns").unwrap();
    // The shell is the program; what it starts waits until it is the other one's turn.
    let script = "cat /proc/$$/timerslack_ns; sh -c 'sleep 0.5; cat /proc/$$/timerslack_ns'; true";
    let (ran, _) =
        place.ended("[app]\nshare = \"off\"\nscheduler = \"other\"\n", &["sh", "-c", script]);
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: another process' timers are not this user's to set");
        return;
    }
    assert_eq!(ran.out, format!("1\n{before}"), "{ran:?}");
}

#[test]
fn the_end_of_the_program_is_passed_on() {
    let place = Place::new();
    for (script, code) in
        [("exit 0", 0), ("exit 42", 42), ("kill -TERM $$", 143), ("kill -SEGV $$", 139)]
    {
        let (ran, _) = place.ended(LEND, &["sh", "-c", script]);
        assert_eq!(ran.code, code, "{script}: {ran:?}");
    }
    for (command, code, says) in
        [("no-such-command", 127, "not found"), ("/etc/passwd", 126, "cannot start /etc/passwd")]
    {
        let (ran, _) = place.ended(LEND, &[command]);
        assert_eq!(ran.code, code, "{ran:?}");
        assert!(ran.err.contains(says), "{ran:?}");
    }
    assert!(place.is_clean());
}

/// The kernel forgets children at once for a parent that ignores SIGCHLD, and that is inherited.
#[test]
fn the_end_is_passed_on_also_where_ends_of_children_are_ignored() {
    let place = Place::new();
    let lane = place.lane(LEND, &["sh", "-c", "exit 9"]);
    let mut ignoring = Command::new("sh");
    ignoring.args(["-c", "trap '' CHLD; exec \"$@\"", "sh"]);
    ignoring.arg(lane.get_program()).args(lane.get_args());
    let ran = Ran::of(ignoring.output().unwrap());
    assert_eq!(ran.code, 9, "{ran:?}");
    assert_eq!(place.report()["end"]["exited"], 9);
    assert!(place.is_clean());
}

/// A journal that became a directory cannot be removed.
#[test]
fn what_cannot_be_undone_takes_nothing_from_the_programs_end() {
    let place = Place::new();
    let lanes = place.path("state/lanes");
    let script =
        format!("for one in {}/*.json; do rm $one; mkdir $one; done; exit 7", lanes.display());
    let (ran, report) = place.ended(LEND, &["sh", "-c", &script]);
    assert_eq!(ran.code, 7, "{ran:?}");
    assert!(ran.err.contains("the lane is not completely undone"), "{ran:?}");
    assert_eq!(report["end"]["exited"], 7, "{report}");
}

#[test]
fn a_report_that_cannot_be_written_is_said_before_the_program_starts() {
    let place = Place::new();
    let ran = place.path("ran");
    let mut lane = place.evermap(&["run"]);
    lane.arg("--report").arg(place.path("nowhere/report.json")).args(["--", "touch"]).arg(&ran);
    let said = Ran::of(lane.output().unwrap());
    assert_eq!(said.code, 3, "{said:?}");
    assert!(said.err.contains("does not exist; create it"), "{said:?}");
    assert!(!ran.exists(), "it ran");
}

#[test]
fn signals_to_the_lane_are_the_programs() {
    let place = Place::new();
    let ready = place.path("ready");
    let script =
        format!("trap 'exit 7' TERM; : > {}; while :; do sleep 0.05; done", ready.display());
    let lane = place.start(LEND, &["sh", "-c", &script]);
    wait_for("the trap", PATIENCE, || ready.exists());
    send(lane.child.id(), Signal::TERM);
    assert_eq!(lane.ends().code, 7);
    assert!(place.is_clean());
}

#[test]
fn without_a_core_of_its_own_and_without_a_policy_the_rest_works() {
    let place = Place::new();
    let policy = "[app]\nshare = \"off\"\nscheduler = \"other\"\n[io]\nlock_memory = false\n";
    let (ran, report) = place.ended(policy, &["sh", "-c", "cat /proc/$$/stat; true"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(class(&ran.out), Some(0));
    assert!(
        report["core"].is_null() && report["not_applied"].as_array().unwrap().is_empty(),
        "{report}"
    );
}

#[test]
fn with_one_core_lend_works() {
    let place = Place::new();
    let core = cores()[0].to_string();
    fs::write(place.path("policy.toml"), LEND).unwrap();
    let mut command = Command::new("taskset");
    command.args(["-c", &core, env!("CARGO_BIN_EXE_evermap"), "lane", "run", "--state"]);
    command.arg(place.path("state")).arg("--policy").arg(place.path("policy.toml"));
    let ran = Ran::of(command.args(["--", "sh", "-c", "sleep 0.1; exit 5"]).output().unwrap());
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.err.contains("is the only core"), "{ran:?}");
}

#[test]
fn a_policy_is_for_the_programs_that_it_names() {
    let place = Place::new();
    let (ran, _) = place.ended("[app]\nmatch = \"*/sleep\"\n", &["sleep", "0"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let (ran, _) = place.ended("[app]\nmatch = \"*/mpv\"\n", &["sleep", "0"]);
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(ran.err.contains("*/mpv") && place.is_clean(), "{ran:?}");
    let (ran, _) = place.ended("[app]\nframes = 3\n", &["true"]);
    assert!(ran.code != 0 && ran.err.contains("unknown field"), "{ran:?}");
}

#[test]
fn a_policy_that_is_not_there_is_said_with_what_to_do() {
    let place = Place::new();
    let mut lane = place.evermap(&["run", "--policy", "/nowhere/policy.toml"]);
    let ran = Ran::of(lane.args(["--", "true"]).output().unwrap());
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.err.contains("/nowhere/policy.toml") && ran.err.contains("section 3"), "{ran:?}");
}
