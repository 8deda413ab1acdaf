//! Processes with their families. These tests have a process of their own, because each ends all
//! children that it did not find at its start.

#![allow(clippy::unwrap_used)]

use std::process::Command;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bench_harness::process::LIMIT;
use bench_harness::running::{Running, children};

static PROCESS_TESTS: Mutex<()> = Mutex::new(());

/// Serialises tests that start processes, because each ends all processes that it did not find
/// at its start.
fn serially() -> MutexGuard<'static, ()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    PROCESS_TESTS.lock().unwrap_or_else(|broken| broken.into_inner())
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]);
    command
}

#[test]
fn a_process_reports_its_output_and_usage() {
    let _serial = serially();
    let script = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; echo done; echo no >&2";
    let ended = Running::start(shell(script)).unwrap().finish().unwrap();
    assert_eq!(ended.output, "done\n");
    assert!(ended.cost.cpu_ms() > 0.0 && ended.cost.cpu_ms() <= ended.cost.wall_ms() * 4.0);
    assert!(ended.cost.rss_max_bytes > 100 << 10 && ended.cost.faults() > 10);
}

#[test]
fn a_failure_quotes_the_error_output_of_the_program() {
    let _serial = serially();
    let running = Running::start(shell("echo first >&2; echo no such page >&2; exit 3")).unwrap();
    let error = running.finish().err().unwrap().to_string();
    assert!(error.contains("no such page") && error.contains("exit status: 3"), "{error}");
}

#[test]
fn large_output_does_not_block() {
    let _serial = serially();
    let ended = Running::start(shell("head -c 300000 /dev/zero")).unwrap().finish().unwrap();
    assert_eq!(ended.output.len(), 300_000);
}

#[test]
fn a_process_that_ignores_sigterm_is_killed() {
    let _serial = serially();
    let running = Running::start(shell("trap '' TERM; while :; do :; done")).unwrap();
    assert!(!running.ends_within(Duration::from_millis(50)).unwrap());
    let pid = running.pid;
    let cost = running.stop(false).unwrap();
    assert!(cost.cpu_ms() > 0.0);
    assert!(rustix::process::test_kill_process(pid).is_err());
}

#[test]
fn helper_processes_are_ended_with_their_children() {
    let _serial = serially();
    let before = children().unwrap();
    // A helper with its own helper, as browsers have them.
    let script = "sh -c 'sh -c \"exec sleep 1000\" & exec sleep 1000' & exit 0";
    let running = Running::start_family(shell(script)).unwrap();
    running.finish().unwrap();
    assert_eq!(children().unwrap(), before);
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.map(|process| std::fs::read(process.path().join("cmdline")));
    assert!(!lines.flatten().any(|line| line.starts_with(b"sleep\01000")));
}

#[test]
fn processor_time_includes_running_children() {
    let _serial = serially();
    let running = Running::start_family(shell("(while :; do :; done) & wait")).unwrap();
    let start = Instant::now();
    while running.cpu() < Duration::from_millis(50) && start.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(running.cpu() >= Duration::from_millis(50));
}
