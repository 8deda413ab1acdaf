//! Kills or fails `restore --force` at each of its system calls. The old store stays until the new
//! one is complete, and a failed call changes nothing. `EVERMAP_RESTORE_EVERY=1` tries every call.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Place, Ran, page};

/// System calls that change something or can fail.
const CALLS: [&str; 18] = [
    "openat",
    "mkdir",
    "mkdirat",
    "write",
    "pwrite64",
    "read",
    "pread64",
    "copy_file_range",
    "ftruncate",
    "fallocate",
    "fsync",
    "fdatasync",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "fcntl",
];
/// Maximum time of a run. A hang is a failure.
const TIMEOUT: Duration = Duration::from_secs(60);
/// One in this many cases is tried by default.
const EVERY: usize = 5;

fn documents(place: &Place) -> String {
    place
        .ok(&["ls", "--json"])
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|line| format!("{} {}\n", line["name"], line["nodes"]))
        .collect()
}

/// Runs `restore` under strace, with an injected fault if one is given.
fn restore(place: &Place, log: &Path, inject: Option<&str>) -> Ran {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o"]).arg(log);
    command.args(["-e", &format!("trace={}", CALLS.join(","))]);
    if let Some(inject) = inject {
        command.args(["-e", inject]);
    }
    command.env_clear().env("HOME", place.path("")).current_dir(place.path(""));
    command.arg(env!("CARGO_BIN_EXE_evermap")).args(["--store", "store", "restore", "backup"]);
    command.arg("--force").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > TIMEOUT {
            child.kill().unwrap();
            panic!("a hang with {inject:?}: {:?}", child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ran::of(child.wait_with_output().unwrap())
}

/// Counts the calls of each kind by one thread, from the log of strace.
fn counts(log: &Path) -> BTreeMap<&'static str, usize> {
    let text = std::fs::read_to_string(log).unwrap();
    let mut by_thread: BTreeMap<(&str, &'static str), usize> = BTreeMap::new();
    for line in text.lines() {
        let Some((thread, call)) = line.split_once(' ') else { continue };
        let call = call.trim_start().split('(').next().unwrap_or_default();
        if let Some(call) = CALLS.iter().find(|known| **known == call) {
            *by_thread.entry((thread, call)).or_default() += 1;
        }
    }
    let mut most = BTreeMap::new();
    for ((_, call), count) in by_thread {
        let known: &mut usize = most.entry(call).or_default();
        *known = count.max(*known);
    }
    most
}

fn place() -> Place {
    let place = Place::new();
    place.file("a.html", page(40, "old"));
    place.file("b.html", page(4, "b"));
    place.ok(&["parse", "a.html", "b.html"]);
    place.ok(&["backup", "backup"]);
    place.file("a.html", page(300, "new"));
    place.file("c.html", page(5, "c"));
    place.ok(&["parse", "a.html", "c.html"]);
    place.ok(&["rm", "b.html"]);
    place
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(copied.unwrap().success());
}

#[test]
fn a_restore_killed_or_failed_at_any_call_leaves_the_old_store_or_the_new_one() {
    let place = place();
    let log = place.path("calls");
    let probe = Command::new("strace").args(["-f", "-o", "/dev/null", "true"]).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        return eprintln!("SKIPPED: strace cannot trace here");
    }
    let old = documents(&place);
    copy(&place.path("store"), &place.path("kept"));
    assert_eq!(restore(&place, &log, None).code, 0);
    let (new, calls) = (documents(&place), counts(&log));
    assert_ne!(old, new);

    let given = std::env::var("EVERMAP_RESTORE_EVERY").ok().and_then(|text| text.parse().ok());
    let cases: Vec<(String, bool)> = calls
        .iter()
        .flat_map(|(call, count)| (1..=*count).map(move |when| (call, when)))
        .flat_map(|(call, when)| {
            let inject = |what: &str| format!("inject={call}:{what}:when={when}");
            let error = if call.starts_with("pw") || *call == "write" { "ENOSPC" } else { "EIO" };
            [(inject("signal=KILL"), true), (inject(&format!("error={error}")), false)]
        })
        .collect();
    let (mut was_old, mut was_new, mut failed) = (0, 0, 0);
    for (inject, is_kill) in cases.iter().step_by(given.unwrap_or(EVERY)) {
        std::fs::remove_dir_all(place.path("store")).unwrap();
        copy(&place.path("kept"), &place.path("store"));
        let ran = restore(&place, &log, Some(inject));
        assert!(!ran.err.contains("panicked"), "{inject}: {ran:?}");
        let checked = place.run(&["check"]);
        assert_eq!(checked.code, 0, "{inject}: {ran:?} {checked:?}");
        let found = documents(&place);
        match found == old {
            true => was_old += 1,
            false => was_new += 1,
        }
        assert!(found == old || found == new, "{inject}: {found} after {ran:?}");
        if !is_kill {
            failed += usize::from(ran.code != 0);
            assert!(ran.code >= 0, "{inject}: a signal: {ran:?}");
            // The restore is complete even if only its report fails.
            let is_done = ran.code == 0 || ran.err.contains("cannot write the output");
            assert_eq!(is_done, found == new, "{inject}: {found} after {ran:?}");
            if ran.code != 0 {
                assert!(ran.err.contains("evermap: "), "{inject}: {ran:?}");
            }
        }
        // The next undisturbed restore succeeds and removes all leftovers.
        let ran = place.run(&["restore", "backup", "--force"]);
        assert_eq!((ran.code, documents(&place)), (0, new.clone()), "after {inject}: {ran:?}");
        let names = std::fs::read_dir(place.path("")).unwrap().map(|e| e.unwrap().file_name());
        let left: Vec<_> = names
            .filter(|name| {
                let known = ["a.html", "b.html", "c.html", "backup", "store", "kept", "calls"];
                !known.iter().any(|known| name == known) && name != ".local"
            })
            .collect();
        assert!(left.is_empty(), "after {inject}: {left:?}");
    }
    println!(
        "{} of {} cases: {was_old} old, {was_new} new, {failed} failed",
        was_old + was_new,
        cases.len()
    );
    assert!(was_old > 5 && was_new > 5 && failed > 5);
}
