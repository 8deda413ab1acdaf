//! Kills a child that works on a store with SIGKILL at random moments. The store must have a
//! committed state: the last one that the child acknowledged, or the one that it was committing,
//! complete in all its parts.
//!
//! A child writes a mark before and after every step that a kill can interrupt. The parent kills it
//! some time after its start, or some microseconds after a chosen mark. So every phase is hit
//! often, and the statistics at the end prove it.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "kills/work.rs"]
mod work;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use common::{LOG_REQUIRED, Random, TestStore, child, object_file};
use evermap::tools::{CheckOptions, check};
use evermap::{PVec, Store};
use work::{OBJECT, State, check_whole, new_state, objects_after, step};

/// Kills of each kind: 2000 altogether in `make test`.
const KILLS_IN_SESSIONS: u64 = 900;
const KILLS_IN_LONG_SESSIONS: u64 = 400;
const KILLS_OF_OBJECT_CHANGES: u64 = 500;
const KILLS_WITH_READERS: u64 = 200;
/// After this many kills, a test starts a new store on the other kind of file system, because
/// growth of a new store is part of the test.
const KILLS_PER_STORE: u64 = 50;

/// Maximum number of marks before a child is killed in any case.
const MARKS_WAITED_FOR_MAX: u64 = 60;

/// Moment of the kill.
enum Moment {
    /// This long after the start, also during startup and opening.
    AfterStart(Duration),
    /// This long after a mark of this kind, skipping the first ones.
    AfterMark { phase: &'static str, passed: u64, pause: Duration },
}

/// Known facts about a killed child.
#[derive(Debug, Default)]
struct Killed {
    /// The last mark, which names its phase.
    phase: String,
    /// The last state that it acknowledged.
    done: Option<u64>,
    /// The last state that it began.
    begun: Option<u64>,
    /// Commits are durable only when the session says so, and this child said so last.
    durable_at_close: bool,
    durable: Option<u64>,
}

impl Killed {
    fn take_in(&mut self, line: &str) {
        let Some((phase, number)) = line.strip_prefix('@').and_then(|l| l.trim().split_once(' '))
        else {
            return;
        };
        let number = number.parse().unwrap();
        match phase {
            "done" => self.done = Some(number),
            "durable-at-close" => self.durable_at_close = number == 1,
            "begun" | "synced" | "closed" => self.durable = Some(number),
            "commit" | "create" | "replace" | "remove" | "rename" | "batch" => {
                self.begun = Some(number)
            }
            _ => {}
        }
        self.phase = phase.to_string();
    }

    /// Returns the states that may be found, given the state `before` after the previous kill. At
    /// most two: the acknowledged one and the one in progress.
    fn allowed(&self, before: u64) -> Vec<u64> {
        let done = self.done.unwrap_or(before);
        let mut allowed = if self.durable_at_close {
            let durable = self.durable.unwrap_or(before);
            let on_its_way = ["sync", "close"].contains(&self.phase.as_str());
            vec![durable, if on_its_way { done } else { durable }]
        } else {
            vec![done, self.begun.unwrap_or(done).max(done)]
        };
        allowed.dedup();
        allowed
    }
}

/// Lets the child run up to the moment, kills it, and reads its marks.
fn kill(mut process: Child, at: Moment) -> Killed {
    let started = Instant::now();
    let mut output = BufReader::new(process.stdout.take().unwrap());
    let mut killed = Killed::default();
    let mut line = Vec::new();
    let mut read_line = |killed: &mut Killed| {
        line.clear();
        // A kill truncates no line: a mark is one `write` shorter than a pipe's atomic size.
        let more = output.read_until(b'\n', &mut line).unwrap() > 0;
        killed.take_in(&String::from_utf8_lossy(&line));
        more
    };
    let (since, pause) = match at {
        Moment::AfterStart(pause) => (started, pause),
        Moment::AfterMark { phase, mut passed, pause } => {
            // Some marks occur only once. If the second one was asked for, the first must do.
            for _ in 0..MARKS_WAITED_FOR_MAX {
                let more = read_line(&mut killed);
                if !more || killed.phase == phase && passed == 0 {
                    break;
                }
                passed -= u64::from(killed.phase == phase);
            }
            (Instant::now(), pause)
        }
    };
    std::thread::sleep(pause.saturating_sub(since.elapsed()));
    process.kill().unwrap();
    while read_line(&mut killed) {}
    let status = process.wait().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGKILL), "the child ended by itself: {killed:?}");
    killed
}

/// Chooses a moment, mostly in the phase whose turn it is.
fn choose(random: &mut Random, turn: u64, phases: &[&'static str]) -> Moment {
    if random.one_in(8) {
        return Moment::AfterStart(Duration::from_micros(random.below(9_000)));
    }
    let phase = phases[(turn % phases.len() as u64) as usize];
    let pause = if random.one_in(2) { 0 } else { random.below(400) };
    Moment::AfterMark { phase, passed: random.below(3), pause: Duration::from_micros(pause) }
}

/// Counts occurrences.
#[derive(Default)]
struct Counts(BTreeMap<String, u64>);

impl Counts {
    fn add(&mut self, what: impl Into<String>) {
        *self.0.entry(what.into()).or_default() += 1;
    }

    fn print(&self, title: &str) {
        println!("{title}");
        for (what, count) in &self.0 {
            println!("  {count:5}  {what}");
        }
    }

    fn has(&self, what: &str) -> bool {
        self.0.get(what).is_some_and(|n| *n > 1)
    }

    /// Fails if one of these was never counted, because then the test missed it.
    fn assert_all(&self, wanted: &[&str]) {
        for what in wanted {
            assert!(self.has(what), "too few kills with: {what}");
        }
    }
}

/// Counts the states of the object's files before it is reopened.
fn count_file_states(file: &Path, found: &mut Counts) {
    let object = std::fs::read(file).unwrap();
    let word = |bytes: &[u8], at: usize| -> Option<u64> {
        Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
    };
    let required = object.get(248..252) == Some(&LOG_REQUIRED);
    let Ok(log) = std::fs::read(file.with_extension("log")) else {
        found.add("log: none");
        return;
    };
    if !required {
        found.add("log: there, and not required");
        return;
    }
    // The slot with the higher generation, its salt, and the salt of the first record.
    let slots = [0, 4096].map(|at| (word(&log, at + 32), word(&log, at + 40)));
    let salt = slots.iter().max().and_then(|slot| slot.1);
    let sequences = (8192..log.len())
        .step_by(512)
        .filter(|at| log.get(*at..*at + 4) == Some(b"evR2") && word(&log, at + 8) == salt);
    let records = sequences.count();
    found.add(if records > 0 { "log: required, with records" } else { "log: required, empty" });
    if log.len() > 64 * 1024 {
        found.add("log: grown");
    }
    if word(&object, 96).is_some_and(|length| length < object.len() as u64) {
        found.add("object: longer than its superblock says");
    }
}

/// Asserts that `check` finds no damage besides leftovers. A failing store is kept, because another
/// run kills at other moments.
fn assert_clean(store: &Path) {
    let report = check(store, &CheckOptions::new()).unwrap();
    if report.is_clean() {
        return;
    }
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kept-{}", std::process::id()));
    let copied = Command::new("cp").arg("-a").args([store, &kept]).status();
    let again = check(store, &CheckOptions::new()).map(|report| report.is_clean());
    panic!(
        "{report:#?}\nkept in {}: {copied:?}; looked at again, clean: {again:?}",
        kept.display()
    );
}

/// Creates a store on a disk, or mostly in memory. Kills affect both alike, except for the phases
/// that they hit.
fn new_store(kind: u64) -> TestStore {
    if kind % 3 == 1 { TestStore::new() } else { TestStore::in_memory() }
}

/// Opens the store after a kill. Returns the number of the state.
fn reopen(path: &Path, killed: &Killed, before: u64, write: bool) -> u64 {
    let allowed = killed.allowed(before);
    let store = Store::open(path).unwrap();
    let number = {
        let state = store.read::<State>(OBJECT).unwrap();
        let number = state.number;
        assert!(allowed.contains(&number), "{number} is not in {allowed:?}: {killed:?}");
        check_whole(&state);
        state.number
    };
    if !write {
        return number;
    }
    let mut session = store.write::<State>(OBJECT).unwrap();
    assert_eq!(session.number, number, "a state that was seen was lost");
    check_whole(&session);
    step(session.root_mut(), number + 1).unwrap();
    session.commit().unwrap();
    session.close().unwrap();
    let state = store.read::<State>(OBJECT).unwrap();
    check_whole(&state);
    state.number
}

/// Returns true if a closed object does not require a log.
///
/// When another thread of this test starts a program, the new process holds the open files until it
/// executes. A lock of a snapshot that is dropped in that time stays until then. A writer that
/// closes before that leaves its log, as it does with any reader. The next writer does not.
fn needs_no_log(path: &Path, file: &Path) -> bool {
    for _ in 0..20 {
        let required = &std::fs::read(file).unwrap()[248..252];
        if required == [0; 4] {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
        Store::open(path).unwrap().write::<State>(OBJECT).unwrap().close().unwrap();
    }
    false
}

fn kill_committing_children(kills: u64, commits_max: u64, phases: &[&'static str]) {
    let mut random = Random::from_environment("kills");
    let mut in_phase = Counts::default();
    let mut found = Counts::default();
    let mut store = None;
    let mut number = 0;
    let mut found_wanted = vec![
        "kill: before the first commit returned",
        "log: required, with records",
        "log: grown",
        "object: longer than its superblock says",
        "kill: durable at close",
    ];
    if commits_max < 100 {
        found_wanted.extend(["log: none", "log: required, empty"]);
    }
    let phases_wanted: Vec<String> =
        phases.iter().map(|phase| format!("during or after `{phase}`")).collect();
    let phases_wanted: Vec<&str> = phases_wanted.iter().map(String::as_str).collect();
    // On a busy machine some moments are hard to hit.
    for round in 0..kills * 4 {
        let has_all = phases_wanted.iter().all(|what| in_phase.has(what))
            && found_wanted.iter().all(|what| found.has(what));
        if round >= kills && has_all {
            break;
        }
        if round % KILLS_PER_STORE == 0 {
            let test = new_store(round / KILLS_PER_STORE);
            new_state(&test);
            store = Some(test.close());
            number = 0;
        }
        let (path, _directory) = store.as_ref().unwrap();
        let file = object_file(path);
        let (seed, commits) = (random.number().to_string(), commits_max.to_string());
        let log_bytes_max = if random.one_in(2) { "300000" } else { "67108864" };
        let arguments = [path.to_str().unwrap(), &seed, &commits, log_bytes_max];
        let process = child("work::child_commits_states", &arguments);
        let killed = kill(process, choose(&mut random, round, phases));
        in_phase.add(format!("during or after `{}`", killed.phase));
        found.add(if killed.durable_at_close { "kill: durable at close" } else { "kill: durable" });
        if killed.done.is_none() {
            found.add("kill: before the first commit returned");
        }
        count_file_states(&file, &mut found);
        assert_clean(path);
        // If there is no writer in between, the next child runs the recovery and may be killed in
        // it.
        let write = random.one_in(3);
        number = reopen(path, &killed, number, write);
        assert_clean(path);
        if write {
            assert!(needs_no_log(path, &file), "a closed object requires a log");
        }
    }
    in_phase.print("killed");
    found.print("found");
    in_phase.assert_all(&phases_wanted);
    found.assert_all(&found_wanted);
}

#[test]
fn kills_in_short_sessions_leave_a_committed_state() {
    let phases = [
        "open",
        "begin",
        "begun",
        "commit",
        "done",
        "rollback",
        "rolled-back",
        "sync",
        "close",
        "closed",
    ];
    kill_committing_children(KILLS_IN_SESSIONS, 6, &phases);
}

#[test]
fn kills_in_a_long_session_leave_a_committed_state() {
    let phases = ["begin", "commit", "done", "commit", "rollback", "sync"];
    kill_committing_children(KILLS_IN_LONG_SESSIONS, 1_000_000, &phases);
}

/// Asserts that the store holds exactly the objects after this many changes.
fn holds(store: &Store, changes: u64) -> bool {
    let expected = objects_after(changes);
    let mut names = store.list().unwrap();
    names.sort();
    names.iter().eq(expected.keys())
        && expected.iter().all(|(name, (value, times))| {
            let v = store.read::<PVec<u64>>(name).unwrap();
            v.len() == *times && v.iter().all(|n| n == value)
        })
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Asserts that there is one file per object, logs only with their objects, and nothing unfinished.
fn assert_no_litter(store: &Path, objects: usize) {
    assert_eq!(names_in(&store.join("building")), [""; 0]);
    let (logs, files): (Vec<String>, Vec<String>) =
        names_in(&store.join("objects")).into_iter().partition(|name| name.ends_with(".log"));
    assert_eq!(files.len(), objects, "{files:?}");
    for log in logs {
        assert!(files.iter().any(|file| log.starts_with(file)), "{log} has no object");
    }
}

#[test]
fn kills_during_creation_replacement_renaming_and_removal_leave_all_or_nothing() {
    let phases = ["open", "create", "replace", "remove", "rename", "batch", "done"];
    let mut random = Random::from_environment("kills");
    let mut in_phase = Counts::default();
    let mut found = Counts::default();
    let mut store = None;
    let mut changes = 0;
    for round in 0..KILLS_OF_OBJECT_CHANGES {
        if round % KILLS_PER_STORE == 0 {
            store = Some(new_store(round / KILLS_PER_STORE).close());
            changes = 0;
        }
        let (path, _directory) = store.as_ref().unwrap();
        let next = (changes + 1).to_string();
        let arguments = [path.to_str().unwrap(), "1", &next];
        let process = child("work::child_changes_objects", &arguments);
        let killed = kill(process, choose(&mut random, round, &phases));
        in_phase.add(format!("during or after `{}`", killed.phase));
        let litter = !names_in(&path.join("building")).is_empty();
        found.add(if litter { "an unfinished object" } else { "no unfinished object" });
        assert_clean(path);
        let store = Store::open(path).unwrap();
        let allowed = killed.allowed(changes);
        let there = allowed.iter().find(|changes| holds(&store, **changes));
        changes = *there.unwrap_or_else(|| {
            panic!("expected one of {allowed:?}, found {:?}", store.list().unwrap())
        });
        if killed.begun.is_some() && killed.done < killed.begun {
            found.add(if Some(changes) == killed.begun { "change: made" } else { "change: lost" });
        }
        if random.one_in(3) {
            // The next change cleans up after killed processes.
            store.create::<u64, _>("passing", 1).unwrap();
            store.remove("passing").unwrap();
            drop(store);
            assert_no_litter(path, objects_after(changes).len());
            assert_clean(path);
        }
    }
    in_phase.print("killed");
    found.print("found");
    let wanted: Vec<String> = phases.iter().map(|p| format!("during or after `{p}`")).collect();
    in_phase.assert_all(&wanted.iter().map(String::as_str).collect::<Vec<_>>());
    found.assert_all(&["an unfinished object", "change: made", "change: lost"]);
}

#[test]
fn kills_of_writers_and_concurrent_readers_leave_a_committed_state() {
    let phases = ["begin", "commit", "done", "close", "closed"];
    let mut random = Random::from_environment("kills");
    let mut in_phase = Counts::default();
    let mut store = None;
    let mut reader: Option<Child> = None;
    let mut number = 0;
    let mut seen_newest = 0;
    let (mut file_was, mut replaced) = (0, 0);
    for round in 0..KILLS_WITH_READERS {
        if round % KILLS_PER_STORE == 0 {
            end(reader.take());
            let test = new_store(round / KILLS_PER_STORE);
            new_state(&test);
            store = Some(test.close());
            number = 0;
        }
        let (path, directory) = store.as_ref().unwrap();
        let seen = directory.path().join("seen");
        if reader.is_none() {
            let arguments = [path.to_str().unwrap(), "1", seen.to_str().unwrap()];
            reader = Some(child("work::child_reads_states", &arguments));
        }
        let seed = random.number().to_string();
        // A reader is open, so the log gets full, and the file is replaced.
        let arguments = [path.to_str().unwrap(), &seed, "20", "300000"];
        let process = child("work::child_commits_states", &arguments);
        let killed = kill(process, choose(&mut random, round, &phases));
        in_phase.add(format!("during or after `{}`", killed.phase));
        if random.one_in(2) {
            end(reader.take());
        }
        let inode = std::fs::metadata(object_file(path)).unwrap().ino();
        replaced += u64::from(std::mem::replace(&mut file_was, inode) != inode);
        number = reopen(path, &killed, number, false);
        let bytes = std::fs::read(&seen).unwrap_or_default();
        let seen = bytes.try_into().map(u64::from_le_bytes).unwrap_or(0);
        assert!(seen <= number, "a reader saw state {seen}, but {number} was found");
        seen_newest = seen_newest.max(seen);
        assert_clean(path);
    }
    end(reader.take());
    in_phase.print("killed");
    println!("  {replaced:5}  the file was replaced under a reader");
    assert!(seen_newest > 0, "no reader ever saw a commit");
    assert!(replaced > KILLS_WITH_READERS / KILLS_PER_STORE, "the log was never full");
    in_phase.assert_all(&["during or after `commit`", "during or after `close`"]);
}

/// Kills a reader, which must have read until then.
fn end(reader: Option<Child>) {
    let Some(mut process) = reader else { return };
    process.kill().unwrap();
    let status = process.wait().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGKILL), "the reader ended by itself");
}
