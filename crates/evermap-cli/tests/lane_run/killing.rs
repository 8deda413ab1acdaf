//! After a kill of any process at any time, the lane is undone within a second or by the next
//! `undo`.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::common::programs::copy_program;
use crate::place::{AWAY, HOLD, LEND, Place, SLEEP, UNDONE_MAX};
use crate::system::{
    TIMEOUT, affinity, groups, is_alive, is_ordinary, kill, policy_of, send, wait_for,
};

for_each_policy! {
    the_lane_of_a_killed_program_is_undone_within_a_second,
    a_killed_lane_is_undone_within_a_second_and_its_program_continues,
    a_lane_undoes_itself_within_a_second_after_a_kill_of_its_guardian,
    undo_undoes_a_lane_whose_processes_are_all_killed_and_can_be_repeated,
    the_next_lane_undoes_a_lane_whose_processes_are_all_killed,
    a_lane_killed_at_any_time_of_its_start_leaves_nothing,
}

fn the_lane_of_a_killed_program_is_undone_within_a_second(place: &Place, policy: &str) {
    let lane = place.start(policy, &SLEEP);
    kill(lane.program);
    place.wait_until_undone("the program's lane to be undone");
    assert_eq!(lane.wait().code, 137);
}

fn a_killed_lane_is_undone_within_a_second_and_its_program_continues(place: &Place, policy: &str) {
    let mut lane = place.start(policy, &SLEEP);
    lane.child.kill().unwrap();
    place.wait_until_undone("the guardian to undo");
    assert!(is_alive(lane.program), "the program was killed with its lane");
    wait_for("the program to be ordinary", UNDONE_MAX, || is_ordinary(lane.program));
    wait_for("the guardian to end", TIMEOUT, || !is_alive(lane.guardian));
}

fn a_lane_undoes_itself_within_a_second_after_a_kill_of_its_guardian(place: &Place, policy: &str) {
    let lane = place.start(policy, &SLEEP);
    kill(lane.guardian);
    place.wait_until_undone("the lane to undo");
    assert!(is_alive(lane.program) && is_ordinary(lane.program));
    kill(lane.program);
    let ran = lane.wait();
    assert_eq!(ran.code, 137, "{ran:?}");
    assert!(ran.err.contains("the guardian was killed"), "{ran:?}");
}

fn undo_undoes_a_lane_whose_processes_are_all_killed_and_can_be_repeated(
    place: &Place,
    policy: &str,
) {
    let mut lane = place.start(policy, &SLEEP);
    // The guardian is killed first, because it would undo the lane.
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

fn the_next_lane_undoes_a_lane_whose_processes_are_all_killed(place: &Place, policy: &str) {
    let mut lane = place.start(policy, &SLEEP);
    let program = lane.program;
    // A stopped lane cannot notice that its guardian is gone.
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

fn a_lane_killed_at_any_time_of_its_start_leaves_nothing(place: &Place, policy: &str) {
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
        // Without a journal, `undo` has nothing to wait for. A guardian that is still starting has
        // the core until it exits.
        wait_for("the core to be released", TIMEOUT, || place.is_clean());
        let program = journal["program"]["pid"].as_u64().unwrap_or(0) as u32;
        // A process that has not executed the program yet exits, because its lane is gone.
        let is_harmless = || !is_alive(program) || is_ordinary(program);
        wait_for("the program to be ordinary, or to end", UNDONE_MAX, is_harmless);
        kill(program);
    }
    assert!(was_caught, "no kill came before the program's start");
}

#[test]
fn the_guardian_of_a_stopped_lane_undoes_it_when_the_program_ends() {
    let place = Place::new();
    let lane = place.start(LEND, &SLEEP);
    send(lane.child.id(), Signal::STOP);
    kill(lane.program);
    place.wait_until_undone("the guardian to undo");
    send(lane.child.id(), Signal::CONT);
    assert_eq!(lane.wait().code, 137);
}

/// The name is not UTF-8, as a name in another encoding, or one that the kernel has truncated
/// within a character.
#[test]
fn a_program_whose_name_is_not_utf8_becomes_ordinary_again() {
    let place = Place::new();
    let program = place.directory().join(OsStr::from_bytes(b"player\xc3"));
    let sleep = ["/bin/sleep", "/usr/bin/sleep"].iter().find(|path| fs::exists(path).unwrap());
    copy_program(Path::new(sleep.unwrap()), &program);
    let mut lane = place.start(LEND, &[program.as_os_str(), OsStr::new("1000")]);
    lane.child.kill().unwrap();
    place.wait_until_undone("the guardian to undo");
    assert!(is_alive(lane.program) && is_ordinary(lane.program), "{}", affinity(lane.program));
}

/// A lane of the library, which only its guardian can undo after a kill.
#[test]
fn a_lane_of_a_thread_is_undone_within_a_second_after_a_kill_of_its_process() {
    let Some(place) = Place::with_workqueues() else { return };
    let mut player = Command::new(env!("CARGO_BIN_EXE_evermap"));
    player
        .args(["lane", "play", "--fps", "1000", "--seconds", "60", "--dir"])
        .arg(place.directory());
    let mut player = player.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("the kernel's work to leave the core", TIMEOUT, || !place.is_clean());
    player.kill().unwrap();
    player.wait().unwrap();
    place.wait_until_undone("the guardian to undo");
}

/// Prints counts: `cargo test -p evermap-cli --test lane_run -- --ignored --nocapture trials`.
#[test]
#[ignore = "takes minutes"]
fn trials_of_killing_each_leave_nothing() {
    type Trial = fn(&Place, &str);
    let trials: [(&str, Trial); 4] = [
        ("program", the_lane_of_a_killed_program_is_undone_within_a_second),
        ("lane", a_killed_lane_is_undone_within_a_second_and_its_program_continues),
        ("guardian", a_lane_undoes_itself_within_a_second_after_a_kill_of_its_guardian),
        ("all", undo_undoes_a_lane_whose_processes_are_all_killed_and_can_be_repeated),
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
