//! Backups of a store in use: each object has exactly one commit, and a backup is complete or
//! absent.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::{TestStore, argument, child, copy_store, names};
use evermap::tools::{BackupOptions, CheckOptions, backup, check, restore};
use evermap::{Error, Mut, PMap, PString, PVec, Persist, Store, from_iter};

/// Views of one number that agree only in committed states.
#[derive(Persist)]
#[repr(C)]
struct State {
    number: u64,
    by_name: PMap<PString, u64>,
    list: PVec<u64>,
}

fn new_state(store: &Store, name: &str) {
    let source = StateInit { number: 0, by_name: PMap::new(), list: PVec::new() };
    store.create::<State, _>(name, source).unwrap();
}

fn step(mut root: Mut<'_, State>) -> Result<u64, Error> {
    let mut state = root.fields();
    *state.number += 1;
    let number = *state.number;
    state.by_name.insert(format!("number {}", number % 500).as_str(), number)?;
    state.list.extend((0..30).map(|i| number * 30 + i))?;
    if number.is_multiple_of(400) {
        state.list.clear();
        state.list.shrink_to_fit()?;
    }
    Ok(number)
}

#[track_caller]
fn assert_whole(state: &State) {
    let first = state.number / 400 * 400;
    let expected = (first + 1..=state.number).flat_map(|n| (0..30).map(move |i| n * 30 + i));
    assert!(state.list.iter().copied().eq(expected), "state {}", state.number);
    let newest = state.by_name.iter().map(|(_, n)| *n).max().unwrap_or(0);
    assert_eq!(newest, state.number);
    assert_eq!(state.by_name.len() as u64, state.number.min(500));
}

/// Asserts that the copy is undamaged, closed, and without a log.
#[track_caller]
fn assert_copy(path: &Path) {
    let report = check(path, &CheckOptions::new()).unwrap();
    let nothing = report.findings.is_empty() && report.unchecked.is_empty();
    assert!(nothing, "{:#?} {:?}", report.findings, report.unchecked);
    assert!(report.objects.iter().all(|object| object.log_commits == 0));
    for entry in std::fs::read_dir(path.join("objects")).unwrap() {
        let path = entry.unwrap().path();
        assert!(path.extension().is_none(), "{} in a copy", path.display());
        assert_eq!(std::fs::read(&path).unwrap()[248..252], [0; 4], "a copy needs its log");
    }
}

#[test]
#[ignore = "a child of the test below"]
fn child_commits_and_replaces() {
    let Some(path) = argument(0) else { return };
    let store = Store::open(&path).unwrap();
    let mut session = store.write::<State>("state").unwrap();
    for n in 0u64.. {
        step(session.root_mut()).unwrap();
        session.commit().unwrap();
        if n.is_multiple_of(7) {
            store
                .replace::<PVec<u64>, _>("replaced", from_iter((0..2_000).map(|i| i + n)))
                .unwrap();
        }
        if n.is_multiple_of(50) {
            session.close().unwrap();
            session = store.write::<State>("state").unwrap();
        }
        if n == 20 {
            println!("\nstarted");
        }
    }
}

#[test]
fn a_backup_during_writes_has_one_commit_of_each_object() {
    let test = TestStore::in_memory();
    new_state(&test, "state");
    new_state(&test, "resting");
    test.create::<PVec<u64>, _>("replaced", from_iter(0..2_000)).unwrap();
    let (path, directory) = test.close();
    let mut process = child("child_commits_and_replaces", &[path.to_str().unwrap()]);
    let mut output = BufReader::new(process.stdout.take().unwrap());
    let mut line = String::new();
    while line.trim() != "started" {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "the process ended early");
    }
    let mut reached = Vec::new();
    for number in 0..25 {
        let copy = directory.path().join(format!("copy {number}"));
        // Copy from a process that has the store open, and from one that has not.
        let report = match number % 2 {
            0 => backup(&path, &copy, &BackupOptions::new()).unwrap(),
            _ => Store::open(&path).unwrap().backup(&copy).unwrap(),
        };
        assert_eq!(report.objects, 3);
        assert!(report.findings.is_empty(), "{:?}", report.findings);
        assert_copy(&copy);
        let store = Store::open(&copy).unwrap();
        let state = store.read::<State>("state").unwrap();
        assert_whole(&state);
        reached.push(state.number);
        let replaced = store.read::<PVec<u64>>("replaced").unwrap();
        assert!(replaced.iter().zip(replaced[0]..).all(|(a, b)| *a == b));
        assert_eq!(store.read::<State>("resting").unwrap().number, 0);
        drop((state, replaced, store));
        std::fs::remove_dir_all(&copy).unwrap();
    }
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(reached.is_sorted() && reached[0] >= 20, "{reached:?}");
    assert!(reached[24] > reached[0], "the writer made no progress during the backups");
    assert_eq!(names(directory.path()), ["store"]);
    let report = check(&path, &CheckOptions::new()).unwrap();
    assert!(report.is_clean(), "{report:#?}");
}

#[test]
fn a_backup_includes_commits_in_the_log_and_can_be_written() {
    let test = TestStore::in_memory();
    new_state(&test, "state");
    let mut session = test.write::<State>("state").unwrap();
    for _ in 0..30 {
        step(session.root_mut()).unwrap();
        session.commit().unwrap();
    }
    step(session.root_mut()).unwrap();
    let copy = test.directory.path().join("copy");
    test.backup(&copy).unwrap();
    session.commit().unwrap();
    drop(session);
    let (path, _directory) = test.close();
    assert_copy(&copy);
    let store = Store::open(&copy).unwrap();
    let mut session = store.write::<State>("state").unwrap();
    assert_eq!(session.number, 30);
    assert_whole(&session);
    step(session.root_mut()).unwrap();
    session.commit().unwrap();
    session.close().unwrap();
    new_state(&store, "another");
    drop(store);
    assert_eq!(Store::open(&path).unwrap().read::<State>("state").unwrap().number, 31);
}

#[test]
fn a_backup_after_a_killed_writer_has_the_last_commit() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/format/v1");
    let directory = tempfile::tempdir().unwrap();
    let (path, copy) = (directory.path().join("store"), directory.path().join("copy"));
    copy_store(&folder, &path);
    let report = backup(&path, &copy, &BackupOptions::new()).unwrap();
    assert_eq!(report.objects, 2);
    assert_copy(&copy);
    assert_eq!(Store::open(&copy).unwrap().list().unwrap(), ["closed", "killed"]);
}

#[test]
fn a_backup_never_overwrites_anything() {
    let test = TestStore::in_memory();
    new_state(&test, "state");
    let taken = test.directory.path().join("taken");
    std::fs::create_dir(&taken).unwrap();
    std::fs::write(taken.join("mine"), b"mine").unwrap();
    let file = test.directory.path().join("file");
    std::fs::write(&file, b"mine").unwrap();
    for to in [&taken, &file, &test.path()] {
        let error = test.backup(to).unwrap_err();
        assert!(matches!(error, Error::StoreExists { .. }), "{error}");
    }
    assert_eq!(names(&taken), ["mine"]);
    assert_eq!(names(test.directory.path()), ["file", "store", "taken"]);
    let none = test.directory.path().join("none");
    let error = backup(&none, &taken, &BackupOptions::new()).unwrap_err();
    assert!(matches!(error, Error::NoStore { .. }), "{error}");
}

#[test]
fn a_backup_reports_damage() {
    let test = TestStore::in_memory();
    test.create::<PVec<u64>, _>("v", from_iter(0..10_000)).unwrap();
    let (path, directory) = test.close();
    let file = common::object_file(&path);
    let mut bytes = std::fs::read(&file).unwrap();
    let last = bytes.len() - 5000;
    bytes[last] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    let copy = directory.path().join("copy");
    let report = backup(&path, &copy, &BackupOptions::new()).unwrap();
    assert_eq!(report.findings.len(), 1, "{report:#?}");
    assert_eq!(report.findings[0].object.as_deref(), Some("v"));
    let unverified = directory.path().join("unverified");
    let report = backup(&path, &unverified, &BackupOptions::new().verify(false)).unwrap();
    assert!(report.findings.is_empty());
    // Such a copy is not restored.
    let error = restore(&copy, &path, true, &BackupOptions::new()).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    assert_eq!(std::fs::read(&file).unwrap(), bytes);
    // An unreadable copy is not copied at all.
    bytes.truncate(4096);
    std::fs::write(&file, &bytes).unwrap();
    let nothing = directory.path().join("nothing");
    let error = backup(&path, &nothing, &BackupOptions::new()).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    assert_eq!(names(directory.path()), ["copy", "store", "unverified"]);
}

#[test]
fn a_restore_yields_the_backup_and_never_replaces_an_open_store() {
    let test = TestStore::in_memory();
    new_state(&test, "state");
    let mut session = test.write::<State>("state").unwrap();
    step(session.root_mut()).unwrap();
    session.commit().unwrap();
    session.close().unwrap();
    let copy = test.directory.path().join("copy");
    test.backup(&copy).unwrap();
    let mut session = test.write::<State>("state").unwrap();
    step(session.root_mut()).unwrap();
    session.commit().unwrap();
    session.close().unwrap();
    test.create::<u64, _>("later", 1).unwrap();
    let options = BackupOptions::new();
    let path = test.path();
    let refused = restore(&copy, &path, false, &options).unwrap_err();
    assert!(matches!(refused, Error::StoreExists { .. }), "{refused}");
    let refused = restore(&copy, &path, true, &options).unwrap_err();
    assert!(matches!(refused, Error::Busy { .. }), "it is open here: {refused}");
    assert_eq!(test.list().unwrap(), ["state", "later"]);
    let (path, directory) = test.close();
    let report = restore(&copy, &path, true, &options).unwrap();
    assert_eq!((report.objects, report.directory.as_path()), (1, path.as_path()));
    let elsewhere = directory.path().join("deep").join("elsewhere");
    restore(&copy, &elsewhere, false, &options).unwrap();
    for place in [&path, &elsewhere] {
        assert_copy(place);
        let store = Store::open(place).unwrap();
        assert_eq!(store.list().unwrap(), ["state"]);
        let state = store.read::<State>("state").unwrap();
        assert_eq!(state.number, 1);
        assert_whole(&state);
    }
    assert_eq!(names(directory.path()), ["copy", "deep", "store"]);
    assert_copy(&copy);
}

#[test]
fn backups_are_never_nested_and_only_a_store_is_replaced() {
    let test = TestStore::in_memory();
    test.create::<u64, _>("answer", 42).unwrap();
    let (path, directory) = test.close();
    let options = BackupOptions::new();
    let refused = |result: Result<_, Error>, why: &str| {
        let _: evermap::tools::BackupReport = match result {
            Err(Error::StoreExists { why: found, .. }) if found.contains(why) => return,
            other => panic!("{other:?}, expected a refusal because of `{why}`"),
        };
    };
    let at = |name: &str| directory.path().join(name);
    std::os::unix::fs::symlink(path.join("objects"), at("detour")).unwrap();
    std::os::unix::fs::symlink(at("nowhere"), at("dangling")).unwrap();
    for to in
        [path.join("in"), path.join("objects/deep/in"), at("detour/in"), path.join("objects/../in")]
    {
        refused(backup(&path, &to, &options), "is inside");
    }
    refused(backup(&path, at("dangling"), &options), "already exists");
    let copy = at("copy");
    std::fs::create_dir(&copy).unwrap();
    std::os::unix::fs::symlink(&copy, at("to-copy")).unwrap();
    assert_eq!(backup(&path, at("to-copy"), &options).unwrap().directory, at("to-copy"));
    std::fs::remove_file(at("to-copy")).unwrap();
    refused(restore(&copy, copy.join("in"), false, &options), "is inside");
    refused(restore(&copy, &copy, true, &options), "is the same as");
    // It would be deleted with the store that it replaces.
    common::copy_store(&copy, &path.join("repair-copy"));
    refused(restore(path.join("repair-copy"), &path, true, &options), "is inside");
    std::os::unix::fs::symlink(&path, at("link")).unwrap();
    refused(restore(&copy, at("link"), true, &options), "a symbolic link");
    let home = at("home");
    std::fs::create_dir(&home).unwrap();
    std::fs::write(home.join("letter"), "dear").unwrap();
    std::fs::write(at("file"), "dear").unwrap();
    refused(restore(&copy, &home, true, &options), "`letter`, which is not part of a store");
    refused(restore(&copy, at("file"), true, &options), "Not a directory");
    std::fs::write(path.join("note"), "mine").unwrap();
    refused(restore(&copy, &path, true, &options), "`note`, which is not part of a store");
    std::fs::remove_file(path.join("note")).unwrap();
    std::fs::remove_dir_all(path.join("repair-copy")).unwrap();
    let all = ["copy", "dangling", "detour", "file", "home", "link", "store"];
    assert_eq!(names(directory.path()), all);
    assert_eq!(names(&home), ["letter"]);
    assert_copy(&path);
    assert_copy(&copy);
    restore(&copy, &path, true, &options).unwrap();
    assert_copy(&path);
}

#[test]
#[ignore = "a child of the test below"]
fn child_copies() {
    let (Some(from), Some(to)) = (argument(0), argument(1)) else { return };
    println!("\nstarted");
    backup(from, to, &BackupOptions::new()).unwrap();
    println!("done");
}

#[test]
fn a_killed_backup_leaves_no_partial_destination_and_the_next_one_cleans_up() {
    let test = TestStore::in_memory();
    for n in 0..40 {
        test.create::<PVec<u64>, _>(&n.to_string(), from_iter(0..20_000)).unwrap();
    }
    let (path, directory) = test.close();
    let to = directory.path().join("copy");
    let (mut half, mut whole) = (0, 0);
    for kill in 0..30u64 {
        let arguments = [path.to_str().unwrap(), to.to_str().unwrap()];
        let mut process = child("child_copies", &arguments);
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        while line.trim() != "started" {
            line.clear();
            assert!(output.read_line(&mut line).unwrap() > 0);
        }
        std::thread::sleep(Duration::from_micros(700 * kill));
        process.kill().unwrap();
        process.wait().unwrap();
        if to.exists() {
            whole += 1;
            assert_copy(&to);
            assert_eq!(check(&to, &CheckOptions::new()).unwrap().objects.len(), 41);
            std::fs::remove_dir_all(&to).unwrap();
        } else {
            half += 1;
        }
    }
    assert!(half > 0, "no child was killed before its end ({whole} had finished)");
    backup(&path, &to, &BackupOptions::new()).unwrap();
    assert_copy(&to);
    assert_eq!(names(directory.path()), ["copy", "store"]);
}

/// Runs in its own mount namespace with a file system of a few MiB, which ends with the process.
#[test]
#[ignore = "a child of the test below"]
fn child_backs_up_to_a_small_disk() {
    let (Some(from), Some(disk)) = (argument(0), argument(1)) else { return };
    let to = Path::new(&disk).join("copy");
    let error = backup(&from, &to, &BackupOptions::new()).unwrap_err();
    assert!(matches!(error, Error::DiskFull { .. }), "{error}");
    assert_eq!(names(Path::new(&disk)), Vec::<String>::new());
    let error = restore(&from, &to, false, &BackupOptions::new()).unwrap_err();
    assert!(matches!(error, Error::DiskFull { .. }), "{error}");
    assert_eq!(names(Path::new(&disk)), Vec::<String>::new());
    println!("\nrefused");
}

#[test]
fn a_backup_that_does_not_fit_leaves_nothing() {
    let test = TestStore::in_memory();
    test.create::<PVec<u64>, _>("v", from_iter(0..1_000_000)).unwrap();
    let (path, directory) = test.close();
    let disk = directory.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let script = "mount -t tmpfs -o size=4m none \"$1\" && shift && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]);
    command.arg(&disk).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "child_backs_up_to_a_small_disk", "--ignored", "--nocapture"]);
    command.env("EVERMAP_TEST_ARGUMENT_0", &path).env("EVERMAP_TEST_ARGUMENT_1", &disk);
    let Ok(output) = command.output() else {
        let _ = writeln!(std::io::stderr(), "SKIPPED: no `unshare` here");
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("unshare:") || said.contains("mount:") {
        let _ = writeln!(std::io::stderr(), "SKIPPED: no tmpfs of one's own here: {said}");
        return;
    }
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && out.contains("refused"), "{out}\n{said}");
}
