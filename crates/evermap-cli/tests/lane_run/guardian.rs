//! The guardian cannot be started by hand, ignores termination signals, and ends a lane at its time
//! limit.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::common::Ran;
use crate::common::programs::write_script;
use crate::place::{LEND, Place, SLEEP};
use crate::system::{TIMEOUT, wait_for};
use crate::system::{
    affinity, child_command, class, cores, is_alive, is_child, is_ordinary, kill, send,
};

#[test]
fn a_guardian_cannot_be_started_by_hand() {
    let place = Place::new();
    let lane = place.start(LEND, &SLEEP);
    let id = place.journals()[0].file_stem().unwrap().to_str().unwrap().to_owned();
    let ran = place.run(&["guard", "--id", &id]);
    assert_ne!(ran.code, 0, "{ran:?}");
    assert!(place.journals().len() == 1 && is_alive(lane.program), "the lane was undone");
    let ran = Ran::of(
        Command::new(env!("CARGO_BIN_EXE_evermap"))
            .args(["lane", "start", "--channel", "77", "--program", "/bin/true", "--", "true"])
            .output()
            .unwrap(),
    );
    assert!(ran.code != 0 && ran.err.contains("not started by a lane"), "{ran:?}");
}

#[test]
fn a_guardian_ignores_termination_signals() {
    let place = Place::new();
    let mut lane = place.start(LEND, &SLEEP);
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        send(lane.guardian, signal);
    }
    std::thread::sleep(Duration::from_millis(100));
    assert!(is_alive(lane.guardian) && place.journals().len() == 1);
    lane.child.kill().unwrap();
    place.wait_until_undone("the guardian to undo");
}

for_each_policy!(a_lane_that_reaches_its_time_limit_leaves_an_ordinary_program);

fn a_lane_that_reaches_its_time_limit_leaves_an_ordinary_program(place: &Place, policy: &str) {
    let lane = place.start(&format!("{policy}[guard]\nmax_time_s = 1\n"), &SLEEP);
    wait_for("the end of the lane's time", TIMEOUT, || place.is_clean());
    assert!(is_alive(lane.program) && is_ordinary(lane.program));
    kill(lane.program);
    let ran = lane.wait();
    assert!(ran.code == 137 && ran.err.contains("time ended"), "{ran:?}");
}

#[test]
fn the_maximum_time_limit_is_accepted() {
    let place = Place::new();
    let policy = format!("{LEND}[guard]\nmax_time_s = {}\n", i64::MAX);
    let (ran, _) = place.ended(&policy, &["sh", "-c", "exit 3"]);
    assert_eq!(ran.code, 3, "{ran:?}");
}

/// The guardian has undone the lane and exited before the program starts.
#[test]
fn a_program_that_starts_after_its_lanes_time_limit_is_ordinary() {
    let place = Place::new();
    fs::write(place.path("policy.toml"), "[app]\nfps = 24\n[guard]\nmax_time_s = 1\n").unwrap();
    let helper = place.path("helper");
    let evermap = env!("CARGO_BIN_EXE_evermap");
    let script = format!("#!/bin/sh\n[ \"$2\" != start ] || sleep 3\nexec {evermap} \"$@\"\n");
    write_script(&helper, &script);
    let command = child_command("guardian::child_slow_start");
    let mut child = Command::new(&command[0]);
    let ran = child
        .args(&command[1..])
        .env("EVERMAP_TEST_CHILD_PLACE", place.directory())
        .output()
        .unwrap();
    let ran = Ran::of(ran);
    assert!(ran.out.contains("time ended"), "{ran:?}");
    let output = fs::read_to_string(place.path("output")).unwrap();
    let [stat, allowed] = output.lines().collect::<Vec<_>>()[..] else { panic!("{output}") };
    assert_eq!(class(stat), Some(0), "{output}");
    let all = affinity(std::process::id());
    assert_eq!(allowed.split_ascii_whitespace().last(), Some(all.as_str()), "of {:?}", cores());
    assert!(place.is_clean());
}

/// Runs a lane whose program takes three seconds to start.
#[test]
#[ignore = "runs as a child process of another test"]
fn child_slow_start() {
    use evermap_lane::guard::StateDirectory;
    use evermap_lane::run::{Options, Program, run};
    if !is_child() {
        return;
    }
    let place = PathBuf::from(std::env::var("EVERMAP_TEST_CHILD_PLACE").unwrap());
    let policy = evermap_lane::Policy::read(&place.join("policy.toml")).unwrap();
    let options = Options {
        state: Some(StateDirectory::at(place.join("state")).unwrap()),
        helper: Some(place.join("helper")),
        ..Options::default()
    };
    let output = place.join("output");
    let probe = "cat /proc/$$/stat; grep Cpus_allowed_list /proc/$$/status";
    let script = format!("sleep 2; ({probe}) > {}", output.display());
    let arguments = vec!["-c".into(), script.into()];
    let program = Program { path: "/bin/sh".into(), name: "sh".into(), arguments };
    println!("{}", run(&policy, &program, &options).unwrap());
}
