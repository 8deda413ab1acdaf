//! Real kills: a child works on a store and is killed (SIGKILL) at some instant; what it leaves is
//! a committed state, the one it said last or the one it was committing, whole in all its parts.
//!
//! A child writes a mark before and after everything that can be cut. The parent kills it some time
//! after it was started, or some microseconds after a mark of its choice; so every phase is hit
//! often, and the statistics at the end, printed and asserted, show that it was.
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

/// Kills of each kind: 2000 altogether, in `make test`.
const KILLS_IN_SESSIONS: u64 = 900;
const KILLS_IN_LONG_SESSIONS: u64 = 400;
const KILLS_AMONG_OBJECTS: u64 = 500;
const KILLS_BESIDE_READERS: u64 = 200;
/// After this many a test begins with a new store, on the other kind of file system: growing from
/// nothing is a part of what is tested.
const KILLS_A_STORE: u64 = 50;

/// So many marks a child may set before it is killed anyhow.
const MARKS_WAITED_FOR_MAX: u64 = 60;

/// When the child is killed.
enum Moment {
    /// So long after its start: also while it starts and opens.
    AfterStart(Duration),
    /// So long after it set a mark, not the first ones of them.
    AfterMark { phase: &'static str, passed: u64, pause: Duration },
}

/// What is known about a child that was killed.
#[derive(Debug, Default)]
struct Killed {
    /// The last mark: what it was doing.
    phase: String,
    /// The last thing it said was done.
    done: Option<u64>,
    /// The last thing it began.
    begun: Option<u64>,
    /// Commits are durable only when the session says so, and this one said so last.
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

    /// The numbers that may be found, where `before` was found after the kill before. Two at most:
    /// what was acknowledged, and what was being made so.
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

/// Lets the child work up to the instant, kills it, and reads what it had said.
fn kill(mut process: Child, at: Moment) -> Killed {
    let started = Instant::now();
    let mut output = BufReader::new(process.stdout.take().unwrap());
    let mut killed = Killed::default();
    let mut line = Vec::new();
    let mut read_line = |killed: &mut Killed| {
        line.clear();
        // A kill cuts no line: a mark is one `write` of less than a pipe's atomic size.
        let more = output.read_until(b'\n', &mut line).unwrap() > 0;
        killed.take_in(&String::from_utf8_lossy(&line));
        more
    };
    let (since, pause) = match at {
        Moment::AfterStart(pause) => (started, pause),
        Moment::AfterMark { phase, mut passed, pause } => {
            // Some marks come once in a life: who waits for the second is content with any.
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

/// An instant, mostly in the phase whose turn it is.
fn choose(random: &mut Random, turn: u64, phases: &[&'static str]) -> Moment {
    if random.one_in(8) {
        return Moment::AfterStart(Duration::from_micros(random.below(9_000)));
    }
    let phase = phases[(turn % phases.len() as u64) as usize];
    let pause = if random.one_in(2) { 0 } else { random.below(400) };
    Moment::AfterMark { phase, passed: random.below(3), pause: Duration::from_micros(pause) }
}

/// How often something was so.
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

    /// A statistic that has nothing to say about one of these means a test that missed it.
    fn assert_all(&self, wanted: &[&str]) {
        for what in wanted {
            assert!(self.has(what), "hardly one kill with: {what}");
        }
    }
}

/// What lies in the store's directory, before anybody opens it again.
fn note_what_is_there(file: &Path, found: &mut Counts) {
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
    // The slot of the higher generation, its salt, and the first record's.
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

/// `check` finds no damage: what the dead left behind is told apart from that. A store where it does is
/// kept, as another run kills at other instants.
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

/// A store on a disk, or mostly in memory: to a kill they are the same, but for what it cuts.
fn new_store(kind: u64) -> TestStore {
    if kind % 3 == 1 { TestStore::new() } else { TestStore::in_memory() }
}

/// Opens what a killed child left. Gives the number of the state that is there.
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
    assert_eq!(session.number, number, "a state that was seen went back");
    check_whole(&session);
    step(session.root_mut(), number + 1).unwrap();
    session.commit().unwrap();
    session.close().unwrap();
    let state = store.read::<State>(OBJECT).unwrap();
    check_whole(&state);
    state.number
}

/// Whether an object that is closed asks for no log.
///
/// A program that another thread of this test starts holds what is open here until it executes. The lock of a snapshot that is
/// dropped meanwhile ends then, and a writer that closes before leaves its log, as beside any reader. The next one does not.
fn lets_go_of_log(path: &Path, file: &Path) -> bool {
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
    // On a machine that is busy some instants are hard to hit.
    for round in 0..kills * 4 {
        let has_all = phases_wanted.iter().all(|what| in_phase.has(what))
            && found_wanted.iter().all(|what| found.has(what));
        if round >= kills && has_all {
            break;
        }
        if round % KILLS_A_STORE == 0 {
            let test = new_store(round / KILLS_A_STORE);
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
        note_what_is_there(&file, &mut found);
        assert_clean(path);
        // Where nobody writes in between, the next child does the recovery and may die of it.
        let write = random.one_in(3);
        number = reopen(path, &killed, number, write);
        assert_clean(path);
        if write {
            assert!(lets_go_of_log(path, &file), "a closed object asks for a log");
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

/// The store holds exactly the objects that so many changes make.
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

/// A file an object, logs only beside their objects, and nothing half made.
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
fn kills_while_objects_are_made_replaced_renamed_and_removed_leave_all_or_nothing_of_it() {
    let phases = ["open", "create", "replace", "remove", "rename", "batch", "done"];
    let mut random = Random::from_environment("kills");
    let mut in_phase = Counts::default();
    let mut found = Counts::default();
    let mut store = None;
    let mut changes = 0;
    for round in 0..KILLS_AMONG_OBJECTS {
        if round % KILLS_A_STORE == 0 {
            store = Some(new_store(round / KILLS_A_STORE).close());
            changes = 0;
        }
        let (path, _directory) = store.as_ref().unwrap();
        let next = (changes + 1).to_string();
        let arguments = [path.to_str().unwrap(), "1", &next];
        let process = child("work::child_changes_objects", &arguments);
        let killed = kill(process, choose(&mut random, round, &phases));
        in_phase.add(format!("during or after `{}`", killed.phase));
        let litter = !names_in(&path.join("building")).is_empty();
        found.add(if litter { "an object half made" } else { "no object half made" });
        assert_clean(path);
        let store = Store::open(path).unwrap();
        let allowed = killed.allowed(changes);
        let there = allowed.iter().find(|changes| holds(&store, **changes));
        changes = *there.unwrap_or_else(|| {
            panic!("none of {allowed:?} is what is there: {:?}", store.list().unwrap())
        });
        if killed.begun.is_some() && killed.done < killed.begun {
            found.add(if Some(changes) == killed.begun {
                "change: made"
            } else {
                "change: not made"
            });
        }
        if random.one_in(3) {
            // The next change tidies up after the dead.
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
    found.assert_all(&["an object half made", "change: made", "change: not made"]);
}

#[test]
fn kills_of_writers_and_of_readers_beside_them_leave_a_committed_state() {
    let phases = ["begin", "commit", "done", "close", "closed"];
    let mut random = Random::from_environment("kills");
    let mut in_phase = Counts::default();
    let mut store = None;
    let mut reader: Option<Child> = None;
    let mut number = 0;
    let mut seen_newest = 0;
    let (mut file_was, mut replaced) = (0, 0);
    for round in 0..KILLS_BESIDE_READERS {
        if round % KILLS_A_STORE == 0 {
            end(reader.take());
            let test = new_store(round / KILLS_A_STORE);
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
        // The log gets full beside a reader, and the file is replaced.
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
        assert!(seen <= number, "a reader saw state {seen}, and {number} is what is there");
        seen_newest = seen_newest.max(seen);
        assert_clean(path);
    }
    end(reader.take());
    in_phase.print("killed");
    println!("  {replaced:5}  the file was replaced beside a reader");
    assert!(seen_newest > 0, "no reader ever saw a commit");
    assert!(replaced > KILLS_BESIDE_READERS / KILLS_A_STORE, "the log was never full");
    in_phase.assert_all(&["during or after `commit`", "during or after `close`"]);
}

/// Kills a reader, which must have been at it up to then.
fn end(reader: Option<Child>) {
    let Some(mut process) = reader else { return };
    process.kill().unwrap();
    let status = process.wait().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGKILL), "the reader ended by itself");
}
