//! Runs every reading verb while the whole store is replaced, by `restore --force`, by a rebase and
//! by `mv`. A verb never fails, never misses a document that both stores have, and never reads the
//! catalog of one store and an object of the other.
//!
//! Each reader is held before each of its system calls while the store is replaced.
//! `EVERMAP_REPLACE_EVERY=1` tries every call of every verb, and `EVERMAP_RACE_SECONDS` sets the
//! duration of the race.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "replaced_store/held.rs"]
mod held;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{Place, Ran};
use evermap::tools::{BackupOptions, RebaseOptions, rebase, restore};
use evermap::{Error, PVec, Store, tools};

const NAME: &str = "page";
/// Number of paragraphs of the document in each of the two stores.
const PARAGRAPHS: [usize; 2] = [2, 3];
/// Verbs that read. `DEST` is replaced by a new name each time.
const READERS: [&[&str]; 10] = [
    &["query", NAME, "p", "--count"],
    &["ls"],
    &["ls", "-l"],
    &["info", NAME],
    &["stats", NAME],
    &["map", NAME],
    &["export", NAME, "DEST"],
    &["audit", NAME],
    &["check"],
    &["backup", "DEST"],
];
/// One in this many calls is tried, and every call of the first reader with `restore --force`.
const EVERY: usize = 11;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Restore,
    Rebase,
    Move,
}

/// A store, two backups of it in different states, and a second store to move into its place.
struct Stores {
    place: Place,
    turn: AtomicUsize,
    destinations: AtomicUsize,
}

impl Stores {
    fn new() -> Stores {
        let stores = Stores {
            place: Place::in_memory(),
            turn: AtomicUsize::new(0),
            destinations: AtomicUsize::new(0),
        };
        for (state, paragraphs) in PARAGRAPHS.iter().enumerate() {
            let page = "<p>paragraph".repeat(*paragraphs);
            let parse = ["parse", "-", "--name", NAME, "--force"];
            let ran = stores.place.run_with_input(&parse, page.as_bytes());
            assert_eq!(ran.code, 0, "{ran:?}");
            stores.place.ok(&["backup", &format!("backup-{state}")]);
        }
        stores.place.ok(&["backup", "second"]);
        stores
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path(name)
    }

    /// Replaces the store. Returns false if the command refuses because the store is in use.
    fn replace(&self, way: Way) -> bool {
        let store = self.place.store();
        match way {
            Way::Restore => {
                let turn = self.turn.fetch_add(1, Ordering::Relaxed);
                let backup = self.path(&format!("backup-{}", turn % 2));
                let done = restore(backup, &store, true, &BackupOptions::new());
                is_done(done.map(drop).map_err(tools::Error::from))
            }
            Way::Rebase => {
                let options = RebaseOptions::new();
                let done = rebase(&store, &options).map(|report| report.kept_in);
                if let Ok(Some(kept)) = &done {
                    std::fs::remove_dir_all(kept).unwrap();
                }
                is_done(done.map(drop))
            }
            Way::Move => {
                // A stopped reader cannot see the moment without a store.
                std::fs::rename(&store, self.path("aside")).unwrap();
                std::fs::rename(self.path("second"), &store).unwrap();
                std::fs::rename(self.path("aside"), self.path("second")).unwrap();
                true
            }
        }
    }

    /// A verb with its arguments, and its output.
    fn verb(&self, verb: &[&str]) -> (Vec<String>, Option<PathBuf>) {
        let number = self.destinations.fetch_add(1, Ordering::Relaxed);
        let destination = self.path(&format!("written-{number}"));
        let is_written = verb.contains(&"DEST");
        let arguments = verb.iter().map(|argument| match *argument {
            "DEST" => destination.display().to_string(),
            other => other.to_string(),
        });
        (arguments.collect(), is_written.then_some(destination))
    }
}

fn is_done(replaced: tools::Result<()>) -> bool {
    match replaced {
        Ok(()) => true,
        Err(tools::Error::Store(Error::Busy { .. })) => false,
        Err(error) => panic!("the replacement failed: {error}"),
    }
}

/// Returns why the output of a reader is wrong, or `None` if it matches one of the two stores.
fn wrong(verb: &[&str], ran: &Ran, written: Option<&Path>) -> Option<String> {
    let says = match verb[0] {
        "query" => PARAGRAPHS.iter().any(|count| ran.out == format!("{count}\n")),
        "check" => ran.out.contains("nothing found"),
        "ls" => ran.out.contains(NAME),
        _ => true,
    };
    let wrote = written.is_none_or(|path| {
        let is_there = path.exists();
        if path.is_dir() {
            std::fs::remove_dir_all(path).unwrap();
        } else if is_there {
            std::fs::remove_file(path).unwrap();
        }
        is_there
    });
    let is_right = ran.code == 0 && ran.err.is_empty() && says && wrote;
    (!is_right).then(|| format!("{verb:?}: {ran:?}"))
}

fn number_of(variable: &str) -> Option<f64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

#[test]
fn a_reader_held_at_any_call_while_the_store_is_replaced_reads_one_of_the_two() {
    let stores = Stores::new();
    if !held::can_hold() {
        return eprintln!("SKIPPED: processes cannot be traced here");
    }
    let given = number_of("EVERMAP_REPLACE_EVERY").map(|every| every as usize);
    let (mut failed, mut begin) = (Vec::new(), 0);
    let mut replaced = [0; 3];
    for (kind, way) in [Way::Restore, Way::Rebase, Way::Move].into_iter().enumerate() {
        for verb in READERS {
            let is_whole = way == Way::Restore && verb == READERS[0];
            let every = given.unwrap_or(if is_whole { 1 } else { EVERY });
            // Other calls of each verb.
            begin += 1;
            let mut call = if every == 1 { 0 } else { begin % every };
            loop {
                let (arguments, written) = stores.verb(verb);
                let command =
                    stores.place.command(&arguments.iter().map(|a| &**a).collect::<Vec<_>>());
                let mut was_replaced = false;
                let ran = held::hold_at(command, "store", call, || {
                    was_replaced = stores.replace(way);
                });
                replaced[kind] += usize::from(was_replaced);
                if let Some(what) = wrong(verb, &ran.ran, written.as_deref()) {
                    failed.push(format!("{way:?} at call {call} ({}): {what}", ran.call));
                }
                if !ran.was_held {
                    break;
                }
                call += every;
            }
        }
    }
    println!("{replaced:?} restores, rebases and moves beside readers");
    assert!(failed.is_empty(), "{} failed: {:#?}", failed.len(), &failed[..failed.len().min(20)]);
    assert!(replaced.iter().all(|count| *count > 30), "{replaced:?}");
}

#[test]
fn commits_during_a_rebase_are_kept() {
    if !held::can_hold() {
        return eprintln!("SKIPPED: processes cannot be traced here");
    }
    let place = Place::in_memory();
    let path = place.store();
    Store::create_new(&path).unwrap().create::<PVec<u64>, _>("numbers", [0]).unwrap();
    let every = number_of("EVERMAP_REPLACE_EVERY").map_or(EVERY, |every| every as usize);
    let (mut known, mut call, mut rebased, mut made, mut refused) = (vec![], 0, 0, 0, 0);
    loop {
        let command = place.command(&["rebase"]);
        let path = &path;
        let number = call as u64 + 1;
        let makes = call % (8 * every) == 0;
        let ran = std::thread::scope(|scope| {
            let mut writer = None;
            let ran = held::hold_at(command, "store", call, || {
                let (sender, done) = std::sync::mpsc::channel();
                writer = Some(scope.spawn(move || {
                    let made = match makes {
                        true => make(path, &format!("made-{number}")),
                        false => append(path, number),
                    };
                    let _ = sender.send(());
                    made
                }));
                // It may have to wait for the rebase, which is held.
                let _ = done.recv_timeout(Duration::from_millis(200));
            });
            (ran, writer.map(|writer| writer.join().unwrap()))
        });
        let (ran, changed) = ran;
        // The rebase is refused if a process uses the store or has used it since the start.
        assert!([0, 4].contains(&ran.ran.code), "call {call} ({}): {:?}", ran.call, ran.ran);
        rebased += usize::from(ran.ran.code == 0);
        let store = Store::open(path).unwrap();
        let numbers = store.read::<PVec<u64>>("numbers").unwrap();
        match changed {
            // Acknowledged commits are there.
            Some(Ok(())) if makes => {
                let name = format!("made-{number}");
                assert!(
                    store.contains(&name).unwrap(),
                    "call {call} ({}): {:?}",
                    ran.call,
                    ran.ran
                );
                assert_eq!(*store.read::<PVec<u64>>(&name).unwrap(), [7]);
                // Each object adds calls to a rebase.
                store.remove(&name).unwrap();
                made += 1;
            }
            Some(Ok(())) => known.push(number),
            Some(Err(Error::Busy { .. })) => refused += 1,
            Some(Err(error)) => panic!("a change at call {call} ({}): {error}", ran.call),
            None => {}
        }
        assert_eq!(numbers[1..], known, "call {call} ({}): {:?}", ran.call, ran.ran);
        for entry in std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap()) {
            if entry.file_name().to_string_lossy().starts_with("rebase-") {
                std::fs::remove_dir_all(entry.path()).unwrap();
            }
        }
        if !ran.was_held {
            break;
        }
        call += every;
    }
    let numbers = known.len();
    println!(
        "{rebased} rebases beside {numbers} commits and {made} new objects, {refused} refused"
    );
    assert!(rebased > 10 && numbers > 10 && made > 0);
}

fn append(path: &Path, number: u64) -> Result<(), Error> {
    let mut session = Store::open(path)?.write::<PVec<u64>>("numbers")?;
    session.root_mut().push(number)?;
    session.commit()?;
    session.close()
}

fn make(path: &Path, name: &str) -> Result<(), Error> {
    Store::open(path)?.create::<PVec<u64>, _>(name, [7])
}

#[test]
fn readers_that_race_with_restores_and_rebases_never_fail_and_never_miss_the_document() {
    let stores = Stores::new();
    let seconds = number_of("EVERMAP_RACE_SECONDS").unwrap_or(3.0);
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let failed = Mutex::new(Vec::new());
    let replaced = std::thread::scope(|scope| {
        for verb in READERS {
            let (stores, failed) = (&stores, &failed);
            scope.spawn(move || {
                let mut runs = 0;
                while Instant::now() < end {
                    let (arguments, written) = stores.verb(verb);
                    let arguments: Vec<&str> = arguments.iter().map(|a| &**a).collect();
                    let ran = stores.place.run(&arguments);
                    failed.lock().unwrap().extend(wrong(verb, &ran, written.as_deref()));
                    runs += 1;
                }
                println!("{runs} runs of {verb:?}");
            });
        }
        let mut replaced = [0; 2];
        while Instant::now() < end {
            replaced[0] += usize::from(stores.replace(Way::Restore));
            replaced[1] += usize::from(stores.replace(Way::Rebase));
        }
        replaced
    });
    println!("{replaced:?} restores and rebases");
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{} failed: {:#?}", failed.len(), &failed[..failed.len().min(20)]);
    assert!(replaced.iter().sum::<usize>() > 0, "{replaced:?}");
}
