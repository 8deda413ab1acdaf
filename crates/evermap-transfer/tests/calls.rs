//! System calls of a small copy: source and target are examined once.
//!
//! The copy runs in a child process under `strace`. Skipped if `strace` is missing or may not
//! trace.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Stdio};

use evermap_transfer::Copy;

/// Environment variable with the directory for the traced process.
const DIRECTORY: &str = "EVERMAP_TEST_DIRECTORY";

#[test]
#[ignore = "child process that another test traces"]
fn child_with_one_copy() {
    let Some(temp) = std::env::var_os(DIRECTORY) else { return };
    Copy::new(Path::new(&temp).join("from"), Path::new(&temp).join("to")).run().unwrap();
}

/// Copies under `strace`. Returns the lines of calls that read attributes, or `None` if it may not
/// trace.
fn attribute_calls(temp: &Path) -> Option<Vec<String>> {
    let trace = temp.join("trace");
    let traced = Command::new("strace")
        .args(["-f", "-qq", "-y", "-e", "signal=none", "-e", "trace=%%stat", "-o"])
        .arg(&trace)
        .arg(std::env::current_exe().unwrap())
        .args(["child_with_one_copy", "--exact", "--ignored"])
        .env(DIRECTORY, temp)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !traced.is_ok_and(|status| status.success()) || !temp.join("to").exists() {
        eprintln!("SKIPPED: strace is not installed or may not trace");
        return None;
    }
    Some(std::fs::read_to_string(&trace).unwrap().lines().map(str::to_string).collect())
}

#[test]
fn a_small_copy_examines_source_and_target_once() {
    let temp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let directory = temp.path().canonicalize().unwrap();
    std::fs::write(directory.join("from"), vec![7; 100_000]).unwrap();
    for is_replaced in [false, true] {
        let Some(calls) = attribute_calls(&directory) else { return };
        let of = |name: &str| {
            let (open, named) = (format!("/{name}>"), format!("/{name}\""));
            calls.iter().filter(|call| call.contains(&open) || call.contains(&named)).count()
        };
        // Once before the copy, and once afterwards to detect a change.
        assert_eq!(of("from"), 2, "replaced: {is_replaced}, {calls:#?}");
        assert_eq!(of("to"), 1, "replaced: {is_replaced}, {calls:#?}");
    }
}
