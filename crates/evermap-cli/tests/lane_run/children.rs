//! Child processes of a program are not in its lane.

use std::fs;

use crate::place::Place;
use crate::system::{TIMEOUT, affinity, is_alive, is_ordinary, kill, policy_of, wait_for};

for_each_policy! {
    a_program_that_leaves_a_daemon_ends_the_lane_and_the_daemon_is_ordinary,
    a_program_that_forks_many_times_is_contained,
    a_killed_lane_of_a_forking_program_is_undone,
}

fn a_program_that_leaves_a_daemon_ends_the_lane_and_the_daemon_is_ordinary(
    place: &Place,
    policy: &str,
) {
    let file = place.path("daemon");
    // A grandchild in a new session, with an empty environment.
    let daemon = format!("sleep 1000 & echo $! > {}", file.display());
    let script = format!("setsid env -i sh -c '{daemon}' < /dev/null > /dev/null 2>&1 & wait");
    let (ran, report) = place.ended(policy, &["sh", "-c", &script]);
    let pid: u32 = fs::read_to_string(&file).unwrap().trim().parse().unwrap();
    let (is_there, is_ordinary) = (is_alive(pid), is_ordinary(pid));
    let is = format!("{:?} {}", policy_of(pid), affinity(pid));
    kill(pid);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(is_there && is_ordinary, "{is}");
    assert!(report["events"].to_string().contains("continue as ordinary ones"), "{report}");
    assert!(place.is_clean());
}

fn a_program_that_forks_many_times_is_contained(place: &Place, policy: &str) {
    // 200 processes that run at the same time, each started by the previous one.
    let script = "f() { if [ $1 -gt 0 ]; then (f $(($1 - 1))) & fi; sleep 2; }; f 200";
    let lane = place.start(policy, &["sh", "-c", script]);
    let program = lane.program;
    let ran = lane.wait();
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(!is_alive(program) && place.is_clean());
    let report = place.report();
    assert!(report["children"].as_u64().unwrap() > 0, "{report}");
}

fn a_killed_lane_of_a_forking_program_is_undone(place: &Place, policy: &str) {
    let file = place.path("pids");
    let script = format!(
        "i=0; while [ $i -lt 100 ]; do sleep 30 & echo $! >> {}; i=$((i + 1)); done; wait",
        file.display()
    );
    let mut lane = place.start(policy, &["sh", "-c", &script]);
    wait_for("20 child processes", TIMEOUT, || {
        fs::read_to_string(&file).unwrap_or_default().lines().count() > 20
    });
    lane.child.kill().unwrap();
    place.wait_until_undone("the guardian to undo");
    kill(lane.program);
    let started = fs::read_to_string(&file).unwrap();
    let started: Vec<u32> = started.lines().filter_map(|pid| pid.parse().ok()).collect();
    let wrong: Vec<_> =
        started.iter().filter(|pid| is_alive(**pid) && !is_ordinary(**pid)).collect();
    // The program continued after the kill. Processes it has started since are ordinary from the
    // start.
    let wrong: Vec<_> = wrong.iter().map(|pid| (policy_of(**pid), affinity(**pid))).collect();
    started.iter().for_each(|pid| kill(*pid));
    assert!(wrong.is_empty(), "{wrong:?}");
}
