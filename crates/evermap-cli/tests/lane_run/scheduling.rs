//! Real-time policies in a lane: threads, programs that never sleep, deadlines.

use std::fs;
use std::time::Duration;

use crate::place::{LEND, Place};
use crate::system::wait_for;
use crate::system::{
    TIMEOUT, child_command, class, cores, has_fifo, is_alive, is_child, kill, policy_of,
};

#[test]
fn new_threads_are_in_the_lane_unless_it_is_for_the_main_thread() {
    if !has_fifo() {
        return;
    }
    let place = Place::new();
    for (policy, expected) in [("threads = \"all\"", "1 1 1 1"), ("threads = \"main\"", "1 0 0 0")]
    {
        let command = child_command("scheduling::child_threads");
        let (ran, report) = place.ended(&format!("[app]\n{policy}\n"), &command);
        assert!(ran.out.contains(&format!("policies {expected}")), "{policy}: {ran:?}");
        assert!(report["threads"].as_u64().unwrap() >= 4, "{report}");
    }
}

/// Prints the policies of four threads, after the lane had time to set them.
#[test]
#[ignore = "runs as a child process of another test"]
fn child_threads() {
    if !is_child() {
        return;
    }
    let pid = std::process::id();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| std::thread::sleep(Duration::from_secs(3)));
        }
        std::thread::sleep(Duration::from_secs(2));
        let mut threads: Vec<u32> = fs::read_dir(format!("/proc/{pid}/task"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap())
            .collect();
        threads.sort_unstable();
        let classes: Vec<String> =
            threads.iter().map(|thread| policy_of(*thread).unwrap().to_string()).collect();
        println!("policies {}", classes.join(" "));
    });
}

#[test]
fn a_program_that_never_sleeps_is_demoted_and_continues() {
    if !has_fifo() {
        return;
    }
    let place = Place::new();
    for policy in ["[app]\nfps = 100\n[guard]\nmax_overrun = 3\n", "[app]\npriority = 40\n"] {
        let lane = place.start(policy, &["sh", "-c", "while :; do :; done"]);
        let program = lane.program;
        wait_for("the demotion", TIMEOUT, || policy_of(program) == Some(0));
        assert!(is_alive(program));
        kill(program);
        assert_eq!(lane.wait().code, 137);
        let demotion = place.report()["demotions"][0].clone();
        assert_eq!(demotion["thread"], program);
        assert!(demotion["ran_ms"].as_f64().unwrap() >= 30.0, "{demotion}");
        assert!(place.is_clean());
    }
}

#[test]
fn a_program_that_sleeps_keeps_its_priority() {
    if !has_fifo() {
        return;
    }
    let place = Place::new();
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.1; done; cat /proc/$$/stat";
    let (ran, report) = place.ended(LEND, &["sh", "-c", script]);
    assert_eq!(class(&ran.out), Some(1), "{ran:?}");
    assert_eq!(report["demotions"].as_array().unwrap().len(), 0, "{report}");
}

#[test]
fn sched_deadline_works_without_a_core_or_is_replaced_with_a_report() {
    if !has_fifo() {
        return;
    }
    let place = Place::new();
    let stat = ["sh", "-c", "cat /proc/$$/stat; true"];
    let pinned = format!("[app]\nfps = 60\nscheduler = \"deadline\"\ncore = {}\n", cores()[0]);
    let (ran, report) = place.ended(&pinned, &stat);
    assert_eq!(class(&ran.out), Some(1), "{ran:?}");
    assert!(
        report["not_applied"][0]["what"].as_str().unwrap().contains("SCHED_DEADLINE"),
        "{report}"
    );
    let free = "[app]\nfps = 60\nscheduler = \"deadline\"\nbudget_us = 1000\n";
    let (ran, report) = place.ended(free, &stat);
    match class(&ran.out) {
        Some(6) => assert!(report["core"].is_null(), "{report}"),
        // The kernel refused it, for example because this test may not use all cores. The lane uses
        // FIFO and reports that.
        class => assert!(
            class == Some(1) && report["not_applied"].to_string().contains("SCHED_DEADLINE"),
            "{report}"
        ),
    }
}
