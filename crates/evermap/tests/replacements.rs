//! A name that exists all the time is always found, and lookups never fail, while other processes
//! replace, grow, rename, remove and create objects.
//!
//! Each participant is a process; they share only the store's files. `EVERMAP_RACE_SECONDS` sets
//! how long they run.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::Read;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use common::{TestStore, argument, child};
use evermap::{Error, Options, PVec, Store, tools};

/// Replaced all the time by several processes.
const REPLACED: &str = "replaced";
/// Grows by regions and is recreated.
const GROWING: &str = "growing";
/// Never changed, while other names appear and disappear.
const STAYS: &str = "stays";

/// Duration of each process.
fn work_time() -> Duration {
    let given = std::env::var("EVERMAP_RACE_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs_f64(given.unwrap_or(2.0))
}

/// Calls `round` with its number until the time is over. Prints the number of rounds.
fn rounds(mut round: impl FnMut(u64)) {
    let end = Instant::now() + work_time();
    let mut done = 0;
    while Instant::now() < end {
        round(done);
        done += 1;
    }
    println!("rounds: {done}");
}

#[test]
#[ignore = "a child"]
fn child_replaces() {
    let Some(path) = argument(0) else { return };
    rounds(|n| {
        // A new store handle each time takes and releases leases like a new process. A replacement
        // may wait for a writer's session.
        let store = Options::new().busy_timeout(Duration::from_secs(5)).open(&path).unwrap();
        store.replace::<PVec<u64>, _>(REPLACED, vec![n; 1 + (n % 3) as usize * 9000]).unwrap();
    });
}

#[test]
#[ignore = "a child"]
fn child_grows() {
    let Some(path) = argument(0) else { return };
    let store = Store::open(&path).unwrap();
    rounds(|n| {
        store.replace::<PVec<u64>, _>(GROWING, [7]).unwrap();
        let mut session = store.write::<PVec<u64>>(GROWING).unwrap();
        for size in [20_000, 200_000] {
            session.root_mut().resize(size, n).unwrap();
            session.commit().unwrap();
        }
        session.close().unwrap();
    });
}

#[test]
#[ignore = "a child"]
fn child_changes_other_names() {
    let Some(path) = argument(0) else { return };
    let store = Store::open(&path).unwrap();
    rounds(|n| {
        store.create::<PVec<u64>, _>("one", [n]).unwrap();
        store.rename("one", "two").unwrap();
        store.remove("two").unwrap();
    });
}

/// Looks a name up in an open store in every way.
fn look_up(store: &Store, name: &str) {
    assert!(store.contains(name).unwrap(), "{name} is not contained");
    assert!(store.list().unwrap().iter().any(|known| known == name), "{name} is not listed");
    let snapshot = store.read::<PVec<u64>>(name).unwrap();
    assert!(snapshot.iter().all(|n| *n == snapshot[0]) || name == GROWING);
    assert_eq!(snapshot.info().unwrap().name, name);
    let address = snapshot.as_ptr() as usize;
    // The newest object of that name may be at other addresses now.
    store.object_at(address).unwrap();
    match snapshot.refresh() {
        // Refused while this process has other snapshots of the older commit.
        Ok(_) | Err(Error::Busy { .. }) => {}
        Err(error) => panic!("refresh of {name}: {error}"),
    }
    assert!(store.read_raw(name).unwrap().root().bytes > 0);
    assert_eq!(store.info(name).unwrap().name, name);
    match store.read::<u64>(name) {
        Err(Error::SchemaMismatch { .. }) => {}
        other => panic!("{name} read as a number: {:?}", other.map(|number| *number)),
    }
}

#[test]
#[ignore = "a child"]
fn child_looks_up_in_one_store() {
    let (Some(path), Some(name)) = (argument(0), argument(1)) else { return };
    let store = Store::open(&path).unwrap();
    rounds(|_| look_up(&store, &name));
}

#[test]
#[ignore = "a child"]
fn child_looks_up_in_a_new_store() {
    let (Some(path), Some(name)) = (argument(0), argument(1)) else { return };
    rounds(|_| look_up(&Store::open(&path).unwrap(), &name));
}

#[test]
#[ignore = "a child"]
fn child_writes_a_replaced_object() {
    let Some(path) = argument(0) else { return };
    let options = Options::new().busy_timeout(Duration::from_secs(5));
    rounds(|n| {
        let store = options.open(&path).unwrap();
        let mut session = store.write::<PVec<u64>>(REPLACED).unwrap();
        session.root_mut().clear();
        session.root_mut().push(n).unwrap();
        session.commit().unwrap();
        session.close().unwrap();
    });
}

#[test]
#[ignore = "a child"]
fn child_uses_tools() {
    let (Some(path), Some(name)) = (argument(0), argument(1)) else { return };
    rounds(|n| {
        assert_eq!(tools::map(&path, &name).unwrap().name, name);
        let export = tools::ExportOptions::new();
        let report = tools::export(&path, &name, &mut std::io::sink(), &export).unwrap();
        assert_eq!(report.object, name);
        let audit = tools::AuditOptions::new();
        tools::audit(&path, &name, &audit).unwrap();
        if n % 8 == 0 {
            let report = tools::check(&path, &tools::CheckOptions::new()).unwrap();
            assert!(!report.is_damaged(), "{:?}", report.findings);
            assert!(report.unchecked.is_empty(), "{:?}", report.unchecked);
        }
    });
}

fn start(name: &str, store: &Path, object: &str) -> (String, Child) {
    let started = child(name, &[store.to_str().unwrap(), object]);
    (format!("{name} {object}"), started)
}

/// Waits for the children. Each must succeed and must have done at least one round.
fn wait(children: Vec<(String, Child)>) {
    let mut failed = Vec::new();
    for (name, mut child) in children {
        let mut output = String::new();
        child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
        let ended = child.wait().unwrap();
        let count = output.lines().find_map(|line| line.split("rounds: ").nth(1));
        let count: u64 = count.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        println!("{name}: {count} rounds");
        if !ended.success() || count == 0 {
            failed.push(format!("{name}: {ended}, {count} rounds"));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

fn store_with_objects() -> TestStore {
    let test = TestStore::in_memory();
    for name in [REPLACED, GROWING, STAYS] {
        test.create::<PVec<u64>, _>(name, [7]).unwrap();
    }
    test
}

#[test]
fn lookups_during_replacements_and_growth_never_fail_or_miss_a_name() {
    let test = store_with_objects();
    let (path, _directory) = test.close();
    let writers = ["child_replaces", "child_replaces", "child_grows", "child_changes_other_names"];
    let mut children: Vec<_> = writers.iter().map(|name| start(name, &path, "")).collect();
    children.push(start("child_writes_a_replaced_object", &path, ""));
    children.push(start("child_looks_up_in_one_store", &path, REPLACED));
    children.push(start("child_looks_up_in_one_store", &path, GROWING));
    children.push(start("child_looks_up_in_one_store", &path, STAYS));
    children.push(start("child_looks_up_in_a_new_store", &path, REPLACED));
    children.push(start("child_looks_up_in_a_new_store", &path, GROWING));
    wait(children);
}

#[test]
fn tools_during_replacements_and_growth_never_fail_or_miss_a_name() {
    let test = store_with_objects();
    let (path, _directory) = test.close();
    let writers = ["child_replaces", "child_replaces", "child_grows", "child_changes_other_names"];
    let mut children: Vec<_> = writers.iter().map(|name| start(name, &path, "")).collect();
    for name in [REPLACED, GROWING, STAYS] {
        children.push(start("child_uses_tools", &path, name));
    }
    wait(children);
}
