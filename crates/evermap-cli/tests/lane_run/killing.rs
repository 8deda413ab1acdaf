//! Whoever is killed, and whenever: nothing is left within a second, or by the next `undo`.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::common::programs::copy_program;
use crate::looks::{
    PATIENCE, affinity, groups, is_alive, is_ordinary, kill, policy_of, send, wait_for,
};
use crate::place::{AWAY, HOLD, LEND, Place, SLEEP, UNDONE_MAX};

each_way! {
    a_program_that_is_killed_leaves_nothing_within_a_second,
    a_lane_that_is_killed_is_undone_within_a_second_and_its_program_runs_on,
    a_guardian_that_is_killed_is_noticed_and_the_lane_undoes_within_a_second,
    what_is_left_when_all_are_killed_is_undone_by_undo_and_undo_is_idempotent,
    what_is_left_when_all_are_killed_is_undone_by_the_next_lane,
    a_lane_that_is_killed_at_any_moment_of_its_start_leaves_nothing,
}

fn a_program_that_is_killed_leaves_nothing_within_a_second(place: &Place, policy: &str) {
    let lane = place.start(policy, &SLEEP);
    kill(lane.program);
    place.is_undone_soon("the program's lane to be undone");
    assert_eq!(lane.ends().code, 137);
}

fn a_lane_that_is_killed_is_undone_within_a_second_and_its_program_runs_on(
    place: &Place,
    policy: &str,
) {
    let mut lane = place.start(policy, &SLEEP);
    lane.child.kill().unwrap();
    place.is_undone_soon("the guardian to undo");
    assert!(is_alive(lane.program), "the program is not the lane's to end");
    wait_for("the program to be ordinary", UNDONE_MAX, || is_ordinary(lane.program));
    wait_for("the guardian to end", PATIENCE, || !is_alive(lane.guardian));
}

fn a_guardian_that_is_killed_is_noticed_and_the_lane_undoes_within_a_second(
    place: &Place,
    policy: &str,
) {
    let lane = place.start(policy, &SLEEP);
    kill(lane.guardian);
    place.is_undone_soon("the lane to undo");
    assert!(is_alive(lane.program) && is_ordinary(lane.program));
    kill(lane.program);
    let ran = lane.ends();
    assert_eq!(ran.code, 137, "{ran:?}");
    assert!(ran.err.contains("the guardian was killed"), "{ran:?}");
}

fn what_is_left_when_all_are_killed_is_undone_by_undo_and_undo_is_idempotent(
    place: &Place,
    policy: &str,
) {
    let mut lane = place.start(policy, &SLEEP);
    // The guardian first: it would undo.
    kill(lane.guardian);
    lane.child.kill().unwrap();
    kill(lane.program);
    lane.child.wait().unwrap();
    let undone = place.run(&["undo"]);
    assert_eq!(undone.code, 0, "{undone:?}");
    assert!(place.is_clean(), "{:?} {:?}", place.journals(), groups());
    let again = place.run(&["undo"]);
    assert_eq!((again.code, again.out.as_str()), (0, "nothing was left behind\n"));
}

fn what_is_left_when_all_are_killed_is_undone_by_the_next_lane(place: &Place, policy: &str) {
    let mut lane = place.start(policy, &SLEEP);
    let program = lane.program;
    // Stopped, it cannot notice that its guardian is gone.
    send(lane.child.id(), Signal::STOP);
    kill(lane.guardian);
    lane.child.kill().unwrap();
    lane.child.wait().unwrap();
    assert_eq!(place.journals().len(), 1);
    let status = place.run(&["status"]);
    assert!(status.out.contains("left behind") && status.out.contains("lane undo"), "{status:?}");
    let (ran, report) = place.ended(policy, &["true"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(report["events"].to_string().contains("was left behind"), "{report}");
    assert!(is_ordinary(program), "{:?} {}", policy_of(program), affinity(program));
    assert!(place.is_clean());
}

fn a_lane_that_is_killed_at_any_moment_of_its_start_leaves_nothing(place: &Place, policy: &str) {
    let mut was_caught = false;
    for delay_ms in 0..60 {
        let mut lane = place.lane(policy, &["sleep", "30"]).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(2 * delay_ms));
        let journal = place.journal();
        was_caught |= journal["program"].is_null() && !journal["id"].is_null();
        lane.kill().unwrap();
        lane.wait().unwrap();
        let ran = place.run(&["undo"]);
        assert_eq!(ran.code, 0, "after {delay_ms} ms: {ran:?}");
        // Without a journal, an undo has nothing to wait for: a guardian that is still being started has the core, for as long as that takes here.
        wait_for("the core to be given back", PATIENCE, || place.is_clean());
        let program = journal["program"]["pid"].as_u64().unwrap_or(0) as u32;
        // One that had not become the program yet ends, since its lane is gone.
        let is_harmless = || !is_alive(program) || is_ordinary(program);
        wait_for("the program to be ordinary, or to end", UNDONE_MAX, is_harmless);
        kill(program);
    }
    assert!(was_caught, "no kill came before the program");
}

#[test]
fn a_lane_that_is_stopped_is_undone_by_its_guardian_when_the_program_ends() {
    let place = Place::new();
    let lane = place.start(LEND, &SLEEP);
    send(lane.child.id(), Signal::STOP);
    kill(lane.program);
    place.is_undone_soon("the guardian to undo");
    send(lane.child.id(), Signal::CONT);
    assert_eq!(lane.ends().code, 137);
}

/// As a name in another encoding, or one that the kernel has cut within a letter.
#[test]
fn a_program_whose_name_is_no_text_is_ordinary_again_too() {
    let place = Place::new();
    let program = place.directory().join(OsStr::from_bytes(b"player\xc3"));
    let sleep = ["/bin/sleep", "/usr/bin/sleep"].iter().find(|path| fs::exists(path).unwrap());
    copy_program(Path::new(sleep.unwrap()), &program);
    let mut lane = place.start(LEND, &[program.as_os_str(), OsStr::new("1000")]);
    lane.child.kill().unwrap();
    place.is_undone_soon("the guardian to undo");
    assert!(is_alive(lane.program) && is_ordinary(lane.program), "{}", affinity(lane.program));
}

/// A lane of the library: nobody but its guardian is left to undo it.
#[test]
fn a_thread_in_a_lane_whose_process_is_killed_leaves_nothing_within_a_second() {
    let Some(place) = Place::with_workqueues() else { return };
    let mut player = Command::new(env!("CARGO_BIN_EXE_evermap"));
    player
        .args(["lane", "play", "--fps", "1000", "--seconds", "60", "--dir"])
        .arg(place.directory());
    let mut player = player.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("the kernel's work to be away", PATIENCE, || !place.is_clean());
    player.kill().unwrap();
    player.wait().unwrap();
    place.is_undone_soon("the guardian to undo");
}

/// The promise in numbers: `cargo test -p evermap-cli --test lane_run -- --ignored --nocapture trials`.
#[test]
#[ignore = "takes minutes"]
fn trials_of_killing_each_leave_nothing() {
    type Trial = fn(&Place, &str);
    let trials: [(&str, Trial); 4] = [
        ("program", a_program_that_is_killed_leaves_nothing_within_a_second),
        ("lane", a_lane_that_is_killed_is_undone_within_a_second_and_its_program_runs_on),
        ("guardian", a_guardian_that_is_killed_is_noticed_and_the_lane_undoes_within_a_second),
        ("all", what_is_left_when_all_are_killed_is_undone_by_undo_and_undo_is_idempotent),
    ];
    for (share, policy) in [("lend", LEND), ("hold", HOLD), ("away", AWAY)] {
        for (who, trial) in trials {
            let mut good = 0;
            for _ in 0..100 {
                let place = match share {
                    "hold" => Place::alone(),
                    "away" => Place::with_workqueues(),
                    _ => Some(Place::new()),
                };
                let Some(place) = place else { return };
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    trial(&place, policy)
                }));
                good += usize::from(result.is_ok());
            }
            println!("{share}, kill -9 of {who}: {good} of 100 left nothing");
            assert_eq!(good, 100, "{share}, {who}");
        }
    }
}
