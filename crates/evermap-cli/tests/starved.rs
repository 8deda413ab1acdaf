//! Runs every verb under a file size limit, under a memory limit, and on a full disk. Each exits
//! with the code of its cause and a message with a remedy, and leaves the store in the old or the
//! new state. The verbs are read from the help, so a new verb needs a case.
#![allow(clippy::unwrap_used)]

#[path = "starved/cases.rs"]
mod cases;
mod common;
#[path = "starved/judge.rs"]
mod judge;
#[path = "../../evermap/tests/common/mount.rs"]
mod mount;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use cases::{CASES, Case, LEFT_OUT};
use common::Place;
use judge::{Limit, Prepared, Verdict};
use mount::Mount;

/// Returns all verbs without subcommands, as listed in the help.
fn verbs() -> BTreeSet<Vec<String>> {
    let place = Place::new();
    let mut found = BTreeSet::new();
    let mut queue: Vec<Vec<String>> = vec![Vec::new()];
    while let Some(verb) = queue.pop() {
        let mut words: Vec<&str> = verb.iter().map(String::as_str).collect();
        words.push("-h");
        let help = place.ok(&words);
        // The command's own help has groups of verbs, each with its heading, before the options.
        let listed = match verb.is_empty() {
            true => help.split_once("\nOptions:\n").map(|(above, _)| above),
            false => help.split_once("\nCommands:\n").map(|(_, below)| below),
        };
        match listed {
            None => drop(found.insert(verb)),
            Some(listed) => {
                let is_whole = verb.is_empty();
                let lines = listed.lines().take_while(|line| is_whole || line.starts_with("  "));
                let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
                let names = names.filter_map(|line| line.split_whitespace().next());
                for name in names.filter(|name| *name != "help") {
                    queue.push(verb.iter().cloned().chain([name.to_string()]).collect());
                }
            }
        }
    }
    assert!(found.len() > 30, "{found:?}");
    found
}

#[test]
fn every_verb_has_a_case() {
    let words = |verb: &[&str]| verb.iter().map(ToString::to_string).collect::<Vec<_>>();
    let left_out: BTreeSet<_> = LEFT_OUT.iter().map(|(verb, _)| words(verb)).collect();
    let cases: BTreeSet<_> = CASES.iter().map(|case| words(case.verb)).collect();
    let without: Vec<_> = verbs()
        .into_iter()
        .filter(|verb| !cases.contains(verb) && !left_out.contains(verb))
        .collect();
    assert!(without.is_empty(), "verbs without a case in tests/starved/cases.rs: {without:?}");
}

/// Runs all cases under all limits, in two threads. Returns the number of calls that the limits
/// made fail.
fn run_all(prepared: &Prepared, limits: &[Limit]) -> usize {
    let (next, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let wrong: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let all: Vec<(&Case, Limit)> = CASES
        .iter()
        .filter(|case| case.is_built())
        .flat_map(|case| limits.iter().step_by(case.every).map(move |limit| (case, *limit)))
        .collect();
    let work = || {
        while let Some((case, limit)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            match prepared.judge(case, *limit) {
                Ok(Verdict::Done) => {}
                Ok(Verdict::Refused) => drop(refused.fetch_add(1, Ordering::Relaxed)),
                Err(why) => {
                    wrong.lock().unwrap().push(format!("{:?} with {limit:?}: {why}", case.verb))
                }
            }
        }
    };
    std::thread::scope(|scope| drop((scope.spawn(work), scope.spawn(work))));
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), all.len(), wrong.join("\n"));
    println!("{} runs, {} refused", all.len(), refused.load(Ordering::Relaxed));
    refused.into_inner()
}

#[test]
fn a_file_size_limit_is_an_error_of_every_verb_and_not_a_signal() {
    let prepared = Prepared::new(Path::new("/dev/shm"));
    let sizes = [0, 1, 4096, 20 << 10, 72 << 10, 400 << 10, 2 << 20];
    let refused = run_all(&prepared, &sizes.map(Limit::FileSize));
    assert!(refused > 30, "{refused}");
}

#[test]
fn a_short_stack_stops_no_verb() {
    let prepared = Prepared::new(Path::new("/dev/shm"));
    let refused = run_all(&prepared, &[64 << 10, 200 << 10, 1 << 20].map(Limit::Stack));
    assert_eq!(refused, 0);
}

#[test]
fn a_memory_limit_is_an_error_of_every_verb_and_not_a_signal() {
    let prepared = Prepared::new(Path::new("/dev/shm"));
    let addresses: &[u64] = &[0, 64, 256, 1 << 10, 3 << 10, 40 << 10, 300 << 10];
    let data: &[u64] = &[0, 64, 200, 1 << 10];
    let kinds: [fn(u64) -> Limit; 2] = [Limit::Addresses, Limit::Data];
    for (kind, steps) in kinds.into_iter().zip([addresses, data]) {
        // Below this limit the system's loader cannot start the program.
        let least = prepared.minimum_to_start(kind);
        let limits = steps.iter().map(|kib| kind(least + (kib << 10))).collect::<Vec<_>>();
        let refused = run_all(&prepared, &limits);
        assert!(refused > 20, "{refused}");
    }
}

#[test]
fn a_full_disk_is_an_error_of_every_verb() {
    // The test fills and empties the file system for each call, so one thread runs all of them.
    for mount in Mount::each(64) {
        let mut wrong = Vec::new();
        let mut refused = 0;
        let left = if mount.name == "tmpfs" { &[0, 8 << 10, 100 << 10][..] } else { &[0][..] };
        let prepared = Prepared::new(mount.path());
        for case in CASES.iter().filter(|case| case.is_built()) {
            for bytes in left.iter().step_by(case.every) {
                match prepared.judge_on_full_disk(case, &mount, *bytes) {
                    Ok(Verdict::Done) => {}
                    Ok(Verdict::Refused) => refused += 1,
                    Err(why) => wrong.push(format!(
                        "{:?} with {bytes} bytes left on {}: {why}",
                        case.verb, mount.name
                    )),
                }
            }
        }
        assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
        println!("{}: {refused} refused", mount.name);
        assert!(refused > 10, "{}: {refused}", mount.name);
    }
}
