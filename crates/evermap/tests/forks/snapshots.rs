//! Snapshots that children inherit, concurrent with a writer that commits and applies.

use evermap::{Error, PVec, Store, WriteOptions};

use crate::common::{TestStore, argument, object_file};
use crate::process::{Numbers, Started, Way, fork, run, start, succeeds};

/// Elements of the object, on several pages.
pub const LENGTH: u64 = 3000;
/// Index of the counter of the writer's commits.
pub const COMMITS: usize = 0;
const STOP: usize = 1;

/// Creates a store with an object `numbers` whose elements are equal in each commit.
pub fn store_of_numbers() -> TestStore {
    let test = TestStore::in_memory();
    test.create::<PVec<u64>, _>("numbers", vec![0; LENGTH as usize]).unwrap();
    test
}

/// Returns the value of all elements if they are equal.
pub fn one_number(numbers: &PVec<u64>) -> Option<u64> {
    let first = numbers.first().copied()?;
    (numbers.len() as u64 == LENGTH && numbers.iter().all(|n| *n == first)).then_some(first)
}

#[test]
#[ignore = "a part of other tests: commits until it is told to stop"]
fn role_writer() {
    let (Some(path), Some(numbers)) = (argument(0), argument(1)) else { return };
    let numbers = Numbers::new(numbers.as_ref());
    let store = Store::open(path).unwrap();
    let options = WriteOptions::new().log_bytes_max(256 << 10);
    let mut session = store.write_with::<PVec<u64>>("numbers", &options).unwrap();
    while numbers.get(STOP) == 0 {
        let next = session[0] + 1;
        session.root_mut().as_mut_slice().fill(next);
        session.commit().unwrap();
        // Applied to the file, unless a reader has an older commit.
        session.checkpoint().unwrap();
        numbers.set(COMMITS, next);
    }
    session.close().unwrap();
}

/// A writer that runs during a test.
pub struct Writer {
    process: Started,
    pub numbers: Numbers,
}

impl Writer {
    pub fn start(test: &TestStore) -> Writer {
        let shared = test.directory.path().join("numbers");
        let numbers = Numbers::new(&shared);
        let paths = [test.path(), shared].map(|path| path.to_str().unwrap().to_string());
        let process = start("snapshots::role_writer", &[&paths[0], &paths[1]]);
        assert!(numbers.reaches(COMMITS, 1), "the writer does not commit");
        Writer { process, numbers }
    }

    pub fn stop(mut self) {
        self.numbers.set(STOP, 1);
        assert!(self.process.0.wait().unwrap().success());
    }
}

/// Number of children at a time.
const AT_A_TIME: u64 = 50;

#[test]
#[ignore = "a part of other tests: forks with a snapshot"]
fn role_reader_that_forks() {
    let (Some(path), Some(shared), Some(way)) = (argument(0), argument(1), argument(2)) else {
        return;
    };
    let way = if way == "clone" { Way::Clone } else { Way::Fork };
    let numbers = Numbers::new(shared.as_ref());
    let store = Store::open(path).unwrap();
    let (mut made, count) = (0, crate::process::count());
    while made < count {
        let children: Vec<i32> = (0..AT_A_TIME.min(count - made))
            .map(|_| {
                let snapshot = store.read::<PVec<u64>>("numbers").unwrap();
                let before = one_number(&snapshot).expect("a snapshot is one commit");
                let later = numbers.get(COMMITS) + 2;
                let child = fork(way, || {
                    numbers.reaches(COMMITS, later)
                        && one_number(&snapshot) == Some(before)
                        && snapshot.sequence() > 0
                        && matches!(store.list(), Err(Error::Forked { .. }))
                });
                drop(snapshot);
                child
            })
            .collect();
        made += children.len() as u64;
        children.into_iter().for_each(succeeds);
    }
    println!("\n{made} children");
}

fn children_keep_their_snapshot(way: &str) {
    let test = store_of_numbers();
    let writer = Writer::start(&test);
    let shared = test.directory.path().join("numbers");
    let arguments =
        [test.path().to_str().unwrap(), shared.to_str().unwrap(), way].map(String::from);
    let said =
        run("snapshots::role_reader_that_forks", &[&arguments[0], &arguments[1], &arguments[2]]);
    assert!(said.contains(&format!("{} children", crate::process::count())), "{said}");
    writer.stop();
    // No reader is left: the writer could apply and empty its log.
    let snapshot = test.read::<PVec<u64>>("numbers").unwrap();
    assert!(one_number(&snapshot).is_some());
}

#[test]
fn forked_children_keep_an_inherited_snapshot_that_their_parent_drops() {
    children_keep_their_snapshot("fork");
}

#[test]
fn children_of_a_bare_clone_keep_an_inherited_snapshot_that_their_parent_drops() {
    children_keep_their_snapshot("clone");
}

#[test]
#[ignore = "a part of another test: a child and its child keep a snapshot"]
fn role_generations() {
    let (Some(path), Some(shared)) = (argument(0), argument(1)) else { return };
    let numbers = Numbers::new(shared.as_ref());
    let store = Store::open(path).unwrap();
    let snapshot = store.read::<PVec<u64>>("numbers").unwrap();
    let before = one_number(&snapshot).unwrap();
    let later = numbers.get(COMMITS) + 3;
    let child = fork(Way::Fork, || {
        let mut sessions = vec![snapshot];
        let grandchild = fork(Way::Fork, || {
            numbers.reaches(COMMITS, later) && one_number(&sessions[0]) == Some(before)
        });
        // The child drops its snapshot, and the grandchild keeps its own.
        sessions.clear();
        succeeds(grandchild);
        true
    });
    // The parent's copy was moved into the closure and dropped with it.
    succeeds(child);
}

#[test]
fn a_snapshot_lives_until_parent_child_and_grandchild_have_dropped_it() {
    let test = store_of_numbers();
    let writer = Writer::start(&test);
    let shared = test.directory.path().join("numbers");
    run("snapshots::role_generations", &[test.path().to_str().unwrap(), shared.to_str().unwrap()]);
    writer.stop();
}

#[test]
#[ignore = "a part of another test: commits past the log's bound beside a child's snapshot"]
fn role_log_growth() {
    const BOUND: u64 = 256 << 10;
    let (Some(path), Some(shared)) = (argument(0), argument(1)) else { return };
    let numbers = Numbers::new(shared.as_ref());
    let store = Store::open(&path).unwrap();
    let log = object_file(path.as_ref()).with_extension("log");
    let snapshot = store.read::<PVec<u64>>("numbers").unwrap();
    let child = fork(Way::Fork, || numbers.reaches(STOP, 1) && one_number(&snapshot) == Some(0));
    drop(snapshot);
    let options = WriteOptions::new().log_bytes_max(BOUND);
    let mut session = store.write_with::<PVec<u64>>("numbers", &options).unwrap();
    let mut longest = 0;
    for number in 1..=200 {
        session.root_mut().as_mut_slice().fill(number);
        session.commit().unwrap();
        longest = longest.max(std::fs::metadata(&log).unwrap().len());
    }
    numbers.set(STOP, 1);
    succeeds(child);
    // A child counts as a reader: the file is replaced to bound the log.
    assert!((BOUND..3 * BOUND).contains(&longest), "a log of {longest} bytes");
    assert!(session.checkpoint().unwrap(), "no reader is left");
    session.close().unwrap();
}

#[test]
fn a_child_counts_as_a_reader_and_the_log_stays_bounded() {
    let test = store_of_numbers();
    let shared = test.directory.path().join("numbers");
    let arguments =
        [test.path().to_str().unwrap().to_string(), shared.to_str().unwrap().to_string()];
    run("snapshots::role_log_growth", &[&arguments[0], &arguments[1]]);
    assert_eq!(one_number(&test.read::<PVec<u64>>("numbers").unwrap()), Some(200));
}
