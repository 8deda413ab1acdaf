//! Settings of a program in its lane, its exit code, and its signals.

use std::fs;
use std::process::Command;

use rustix::process::Signal;

use crate::common::Ran;
use crate::place::{LEND, Place};
use crate::system::{TIMEOUT, class, cores, has_fifo, send, wait_for};

for_each_policy!(a_program_has_its_core_and_policy_and_its_children_have_neither);

fn a_program_has_its_core_and_policy_and_its_children_have_neither(place: &Place, policy: &str) {
    let child = "sleep 0.3; cat /proc/self/stat; grep Cpus_allowed_list /proc/self/status";
    // `$$` is the shell, which is the program. `self` is a child of the shell.
    let script =
        format!("cat /proc/$$/stat; grep Cpus_allowed_list /proc/$$/status; sh -c '{child}'; true");
    let (ran, report) = place.ended(policy, &["sh", "-c", &script]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let lines: Vec<&str> = ran.out.lines().collect();
    let [own, own_cores, of_child, cores_of_child] = lines[..] else { panic!("{ran:?}") };
    let core = report["core"].to_string();
    assert_eq!(class(own), Some(u32::from(has_fifo())));
    assert_eq!(own_cores.split_ascii_whitespace().last(), Some(core.as_str()));
    assert_eq!(class(of_child), Some(0), "the child inherited the policy");
    let cores_of_child = cores_of_child.split_ascii_whitespace().last().unwrap();
    assert_ne!(cores_of_child, core, "the child inherited the core");
    assert!(place.is_clean());
}

#[test]
fn children_of_a_program_without_a_core_keep_the_old_timer_slack() {
    let place = Place::new();
    let before = fs::read_to_string("/proc/self/timerslack_ns").unwrap();
    // The shell is the program. Its child waits until the lane has reset the child's timer slack.
    let script = "cat /proc/$$/timerslack_ns; sh -c 'sleep 0.5; cat /proc/$$/timerslack_ns'; true";
    let (ran, _) =
        place.ended("[app]\nshare = \"off\"\nscheduler = \"other\"\n", &["sh", "-c", script]);
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root may set the timer slack of another process");
        return;
    }
    assert_eq!(ran.out, format!("1\n{before}"), "{ran:?}");
}

#[test]
fn the_exit_code_is_that_of_the_program() {
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

/// The kernel reaps the children of a parent that ignores SIGCHLD, and this setting is inherited.
#[test]
fn the_exit_code_is_that_of_the_program_even_if_sigchld_is_ignored() {
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

/// The program replaces the journal by a directory, which the lane cannot remove.
#[test]
fn a_failed_undo_does_not_change_the_exit_code() {
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
fn a_report_that_cannot_be_written_fails_before_the_program_starts() {
    let place = Place::new();
    let ran = place.path("ran");
    let mut lane = place.evermap(&["run"]);
    lane.arg("--report").arg(place.path("nowhere/report.json")).args(["--", "touch"]).arg(&ran);
    let result = Ran::of(lane.output().unwrap());
    assert_eq!(result.code, 3, "{result:?}");
    assert!(result.err.contains("does not exist; create it"), "{result:?}");
    assert!(!ran.exists(), "the program ran");
}

#[test]
fn signals_to_the_lane_are_forwarded_to_the_program() {
    let place = Place::new();
    let ready = place.path("ready");
    let script =
        format!("trap 'exit 7' TERM; : > {}; while :; do sleep 0.05; done", ready.display());
    let lane = place.start(LEND, &["sh", "-c", &script]);
    wait_for("the trap", TIMEOUT, || ready.exists());
    send(lane.child.id(), Signal::TERM);
    assert_eq!(lane.wait().code, 7);
    assert!(place.is_clean());
}

#[test]
fn a_lane_without_a_core_and_a_real_time_policy_works() {
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
fn lend_works_with_one_core() {
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
fn a_policy_for_another_program_is_refused() {
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
fn a_missing_policy_is_reported_with_a_remedy() {
    let place = Place::new();
    let mut lane = place.evermap(&["run", "--policy", "/nowhere/policy.toml"]);
    let ran = Ran::of(lane.args(["--", "true"]).output().unwrap());
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.err.contains("/nowhere/policy.toml") && ran.err.contains("section 3"), "{ran:?}");
}
