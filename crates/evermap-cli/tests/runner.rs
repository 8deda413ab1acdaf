//! The test runner of the workspace: tests run with default signals and a time limit.

use std::process::{Command, Output};
use std::time::Instant;

const RUNNER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/run-test.sh");

/// Runs a program as cargo runs a test, from a path like that of a test.
fn run(before: &str, seconds: u32, script: &str) -> Output {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let deps = directory.path().join("deps");
    std::fs::create_dir(&deps).expect("a directory");
    let program = deps.join("program");
    std::os::unix::fs::symlink("/bin/sh", &program).expect("a link");
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{before}; exec \"$@\""), "sh", RUNNER]);
    command.arg(program).args(["-c", script]).env("EVERMAP_TEST_SECONDS", seconds.to_string());
    command.output().expect("sh runs")
}

fn has_env() -> bool {
    let found = Command::new("env").args(["--default-signal=INT", "true"]).output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("SKIPPED: this system has no `env --default-signal`");
    }
    found
}

#[test]
fn tests_have_default_signals_even_if_the_caller_ignores_some() {
    if !has_env() {
        return;
    }
    let ran = run("trap '' HUP INT QUIT TERM", 60, "grep SigIgn /proc/self/status");
    let text = String::from_utf8(ran.stdout).expect("text");
    let hexadecimal = text.trim().rsplit('\t').next().expect("a mask");
    let ignored = u64::from_str_radix(hexadecimal, 16).expect("a number");
    for (name, signal) in [("HUP", 1), ("INT", 2), ("QUIT", 3), ("TERM", 15)] {
        assert_eq!(ignored >> (signal - 1) & 1, 0, "SIG{name} is ignored: {text}");
    }
}

/// Processes whose arguments contain `text`.
fn running(text: &str) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").expect("processes").flatten();
    let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.starts_with("sleep") && line.contains(text)).collect()
}

#[test]
fn a_hanging_test_is_ended_with_its_children_and_named() {
    if !has_env() {
        return;
    }
    let since = Instant::now();
    // No other process sleeps for exactly this time. One child has its own session, and all
    // children ignore every signal that can be ignored.
    let time = format!("60.{}", std::process::id());
    let hang = format!("trap '' TERM INT HUP; sleep {time} & setsid sleep {time} & sleep {time}");
    let ran = run("true", 1, &hang);
    assert!(!ran.status.success());
    assert!(since.elapsed().as_secs() < 50);
    let told = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(told.contains("deps/program did not end within 1 s"), "{told}");
    assert!(told.matches(&format!("sleep {time}")).count() >= 2, "{told}");
    assert_eq!(running(&time), Vec::<String>::new());
}

#[test]
fn a_test_that_ends_in_time_keeps_its_status_and_its_children() {
    if !has_env() {
        return;
    }
    let time = format!("5.{}", std::process::id());
    let ran = run("true", 60, &format!("sleep {time} >/dev/null 2>&1 & exit 7"));
    assert_eq!(ran.status.code(), Some(7));
    assert!(ran.stderr.is_empty(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(running(&time).len(), 1, "a runner that ends in time looks for nothing");
}

#[test]
fn this_test_uses_the_runner() {
    let has_runner = std::env::var_os("EVERMAP_TEST_LIMITED").is_some();
    let by_cargo = std::env::var_os("CARGO").is_some();
    assert!(has_runner || !by_cargo || !has_env(), "cargo does not use {RUNNER}");
}
