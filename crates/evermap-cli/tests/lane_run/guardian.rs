//! The guardian: nobody's to start by hand, deaf to polite signals, and never ahead of its lane.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::common::Ran;
use crate::common::programs::write_script;
use crate::looks::{PATIENCE, wait_for};
use crate::looks::{act, affinity, class, cores, is_act, is_alive, is_ordinary, kill, send};
use crate::place::{LEND, Place, SLEEP};

#[test]
fn a_guardian_is_nobodys_to_start_by_hand() {
    let place = Place::new();
    let lane = place.start(LEND, &SLEEP);
    let id = place.journals()[0].file_stem().unwrap().to_str().unwrap().to_owned();
    let ran = place.run(&["guard", "--id", &id]);
    assert_ne!(ran.code, 0, "{ran:?}");
    assert!(
        place.journals().len() == 1 && is_alive(lane.program),
        "the lane is not undone by that"
    );
    let ran = Ran::of(
        Command::new(env!("CARGO_BIN_EXE_evermap"))
            .args(["lane", "start", "--channel", "77", "--program", "/bin/true", "--", "true"])
            .output()
            .unwrap(),
    );
    assert!(ran.code != 0 && ran.err.contains("not started by a lane"), "{ran:?}");
}

#[test]
fn a_guardian_is_deaf_to_polite_signals() {
    let place = Place::new();
    let mut lane = place.start(LEND, &SLEEP);
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        send(lane.guardian, signal);
    }
    std::thread::sleep(Duration::from_millis(100));
    assert!(is_alive(lane.guardian) && place.journals().len() == 1);
    lane.child.kill().unwrap();
    place.is_undone_soon("the guardian to undo");
}

each_way!(a_lane_whose_time_is_over_leaves_an_ordinary_program);

fn a_lane_whose_time_is_over_leaves_an_ordinary_program(place: &Place, policy: &str) {
    let lane = place.start(&format!("{policy}[guard]\nmax_time_s = 1\n"), &SLEEP);
    wait_for("the time to be over", PATIENCE, || place.is_clean());
    assert!(is_alive(lane.program) && is_ordinary(lane.program));
    kill(lane.program);
    let ran = lane.ends();
    assert!(ran.code == 137 && ran.err.contains("time ended"), "{ran:?}");
}

#[test]
fn a_time_beyond_all_clocks_is_a_time() {
    let place = Place::new();
    let policy = format!("{LEND}[guard]\nmax_time_s = {}\n", i64::MAX);
    let (ran, _) = place.ended(&policy, &["sh", "-c", "exit 3"]);
    assert_eq!(ran.code, 3, "{ran:?}");
}

/// The guardian has undone all that there was by then, and is gone.
#[test]
fn a_program_that_begins_after_its_lanes_time_is_an_ordinary_one() {
    let place = Place::new();
    fs::write(place.path("policy.toml"), "[app]\nfps = 24\n[guard]\nmax_time_s = 1\n").unwrap();
    let helper = place.path("helper");
    let evermap = env!("CARGO_BIN_EXE_evermap");
    let script = format!("#!/bin/sh\n[ \"$2\" != start ] || sleep 3\nexec {evermap} \"$@\"\n");
    write_script(&helper, &script);
    let command = act("guardian::act_slow_start");
    let mut act = Command::new(&command[0]);
    let ran = act.args(&command[1..]).env("EVERMAP_ACT_PLACE", place.directory()).output().unwrap();
    let ran = Ran::of(ran);
    assert!(ran.out.contains("time ended"), "{ran:?}");
    let said = fs::read_to_string(place.path("said")).unwrap();
    let [stat, allowed] = said.lines().collect::<Vec<_>>()[..] else { panic!("{said}") };
    assert_eq!(class(stat), Some(0), "{said}");
    let all = affinity(std::process::id());
    assert_eq!(allowed.split_ascii_whitespace().last(), Some(all.as_str()), "of {:?}", cores());
    assert!(place.is_clean());
}

/// A lane whose programs take three seconds to begin.
#[test]
#[ignore = "an act"]
fn act_slow_start() {
    use evermap_lane::guard::StateDirectory;
    use evermap_lane::run::{Options, Program, run};
    if !is_act() {
        return;
    }
    let place = PathBuf::from(std::env::var("EVERMAP_ACT_PLACE").unwrap());
    let policy = evermap_lane::Policy::read(&place.join("policy.toml")).unwrap();
    let options = Options {
        state: Some(StateDirectory::at(place.join("state")).unwrap()),
        helper: Some(place.join("helper")),
        ..Options::default()
    };
    let said = place.join("said");
    let looks = "cat /proc/$$/stat; grep Cpus_allowed_list /proc/$$/status";
    let script = format!("sleep 2; ({looks}) > {}", said.display());
    let arguments = vec!["-c".into(), script.into()];
    let program = Program { path: "/bin/sh".into(), name: "sh".into(), arguments };
    println!("{}", run(&policy, &program, &options).unwrap());
}
