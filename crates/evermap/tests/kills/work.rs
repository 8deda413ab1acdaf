//! Work of the children in the kill tests: numbered states, each derived from its number alone, and
//! a mark on standard output before and after every step that a kill may interrupt.
//!
//! A tree, a map, a list and a growing and shrinking block of numbers represent the same state.
//! They agree only in committed states.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use evermap::{
    Durability, Error, Mut, Options, PBox, PMap, PString, PVec, Persist, Store, WriteOptions,
    from_iter,
};

use crate::common::{Random, argument};

/// Name of the object with the states.
pub const OBJECT: &str = "state";
/// Number of recent states that the map contains.
const MAP_NUMBERS: u64 = 30;
/// At multiples of this, the list is truncated to ten elements.
const LIST_TRUNCATED_EVERY: u64 = 50;
/// At multiples of this, the tree is rebuilt.
const TREE_NUMBERS: u64 = 64;
/// At multiples of this, the block of numbers changes.
const BULK_STEP: u64 = 7;

#[derive(Persist)]
#[repr(C)]
pub struct State {
    pub number: u64,
    tree: Option<PBox<Node>>,
    by_name: PMap<PString, u64>,
    list: PVec<PString>,
    bulk: PVec<u64>,
}

#[derive(Persist)]
#[repr(C)]
pub struct Node {
    key: u64,
    left: Option<PBox<Node>>,
    right: Option<PBox<Node>>,
}

/// Spreads consecutive numbers, so that the tree does not degenerate to a list.
fn key_of(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn text_of(number: u64) -> String {
    format!("number {number}")
}

/// Up to 340 KiB, so that some states need more of the file than the previous one.
fn bulk_of(number: u64) -> (usize, u64) {
    let changed = number - number % BULK_STEP;
    ((changed / BULK_STEP % 9 * 4801) as usize, changed)
}

fn list_of(number: u64) -> Vec<u64> {
    let cut = number - number % LIST_TRUNCATED_EVERY;
    let kept = if cut == 0 { 0 } else { 10 };
    (1..=kept).chain(cut + 1..=number).collect()
}

fn tree_of(number: u64) -> Vec<u64> {
    let first = (number - number % TREE_NUMBERS).max(1);
    let mut keys: Vec<u64> = (first..=number).map(key_of).collect();
    keys.sort_unstable();
    keys
}

/// Creates state 0.
pub fn new_state(store: &Store) {
    let source =
        State { number: 0, tree: None, by_name: PMap::new(), list: PVec::new(), bulk: PVec::new() };
    store.create::<State, _>(OBJECT, source).unwrap();
}

/// Changes the previous state to state `number`.
pub fn step(mut root: Mut<'_, State>, number: u64) -> Result<(), Error> {
    let mut state = root.fields();
    *state.number = number;
    if number.is_multiple_of(TREE_NUMBERS) {
        state.tree.clear();
    }
    plant(state.tree.reborrow(), key_of(number))?;
    let text = text_of(number);
    state.by_name.insert(text.as_str(), number)?;
    if number > MAP_NUMBERS {
        state.by_name.remove(text_of(number - MAP_NUMBERS).as_str());
    }
    state.list.push(text.as_str())?;
    if number.is_multiple_of(LIST_TRUNCATED_EVERY) {
        state.list.truncate(10);
    }
    if number.is_multiple_of(BULK_STEP) {
        let (length, value) = bulk_of(number);
        state.bulk.assign(from_iter(std::iter::repeat_n(value, length)))?;
    }
    Ok(())
}

fn plant(mut place: Mut<'_, Option<PBox<Node>>>, key: u64) -> Result<(), Error> {
    while place.is_some() {
        let Some(node) = place.into_mut() else { return Ok(()) };
        let fields = node.into_fields();
        place = if key < *fields.key { fields.left } else { fields.right };
    }
    place.insert(Node { key, left: None, right: None })?;
    Ok(())
}

/// Asserts that all parts agree with the state's number.
pub fn check_whole(state: &State) {
    let number = state.number;
    let list: Vec<&str> = state.list.iter().map(|text| text.as_str()).collect();
    assert_eq!(list, list_of(number).into_iter().map(text_of).collect::<Vec<_>>());
    let map: BTreeMap<&str, u64> = state.by_name.iter().map(|(k, n)| (k.as_str(), *n)).collect();
    let numbers = number.saturating_sub(MAP_NUMBERS) + 1..=number;
    let texts: Vec<(String, u64)> = numbers.map(|n| (text_of(n), n)).collect();
    assert_eq!(map, texts.iter().map(|(text, n)| (text.as_str(), *n)).collect());
    let mut keys = Vec::new();
    walk(&state.tree, 0, &mut keys);
    assert_eq!(keys, tree_of(number));
    let (length, value) = bulk_of(number);
    assert_eq!(state.bulk.len(), length);
    assert!(
        state.bulk.iter().all(|n| *n == value),
        "the block of numbers belongs to another state"
    );
}

fn walk(place: &Option<PBox<Node>>, depth: u64, keys: &mut Vec<u64>) {
    let Some(node) = place else { return };
    assert!(depth < 2 * TREE_NUMBERS, "the tree has a cycle");
    walk(&node.left, depth + 1, keys);
    keys.push(node.key);
    walk(&node.right, depth + 1, keys);
}

/// Prints the next or the completed step.
fn mark(phase: &str, number: u64) {
    println!("@{phase} {number}");
}

/// Opens the store that the parent named, and returns it with a random generator.
fn begin() -> Option<(Store, Random)> {
    let (path, seed) = (argument(0)?, argument(1)?);
    println!();
    mark("open", 0);
    // A verifying parent or a reader may be in the way for a moment.
    let options = Options::new().busy_timeout(Duration::from_secs(20));
    Some((options.open(path).unwrap(), Random::new(seed.parse().unwrap())))
}

#[test]
#[ignore = "a child of the kill tests"]
fn child_commits_states() {
    let Some((store, mut random)) = begin() else { return };
    let commits_max: u64 = argument(2).unwrap().parse().unwrap();
    let log_bytes_max: u64 = argument(3).unwrap().parse().unwrap();
    loop {
        mark("begin", 0);
        let options = choose_options(&mut random, log_bytes_max);
        let mut session = store.write_with::<State>(OBJECT, &options).unwrap();
        mark("begun", session.number);
        for _ in 0..random.below(commits_max) + 1 {
            let number = session.number + 1;
            if random.one_in(8) {
                step(session.root_mut(), number).unwrap();
                step(session.root_mut(), number + 1).unwrap();
                mark("rollback", number);
                session.rollback().unwrap();
                check_whole(&session);
                mark("rolled-back", number);
            }
            step(session.root_mut(), number).unwrap();
            mark("commit", number);
            session.commit().unwrap();
            mark("done", number);
            if random.one_in(6) {
                mark("sync", number);
                session.sync().unwrap();
                mark("synced", number);
            }
        }
        let number = session.number;
        mark("close", number);
        session.close().unwrap();
        mark("closed", number);
    }
}

/// Returns options for any kind of writer. `Close` keeps the other defaults: options that write
/// commits early also make them durable early, which is allowed but not expected by the test.
fn choose_options(random: &mut Random, log_bytes_max: u64) -> WriteOptions {
    let options = WriteOptions::new();
    let options = match random.below(6) {
        0 => {
            mark("durable-at-close", 1);
            return options.durability(Durability::Close);
        }
        1 => options.durability(Durability::Interval(Duration::from_millis(2))),
        2 => options.log_full_pages(true),
        3 => options.hot_bytes_max(0),
        _ => options,
    };
    mark("durable-at-close", 0);
    options.log_bytes_max(log_bytes_max)
}

/// Number of changes before they repeat.
const CHANGES_CYCLE: u64 = 6;

/// Returns the objects after this many changes: for each name, the value and length of its vector.
pub fn objects_after(changes: u64) -> BTreeMap<String, (u64, usize)> {
    let mut objects = BTreeMap::new();
    // A cycle leaves no object from before it.
    let first = (changes - changes % CHANGES_CYCLE).saturating_sub(CHANGES_CYCLE);
    for change in first + 1..=changes {
        let new = content_of(change);
        match change % CHANGES_CYCLE {
            1 | 3 => drop(objects.insert("one".to_string(), new)),
            2 => drop(objects.insert("two".to_string(), new)),
            4 => drop(objects.remove("two").map(|two| objects.insert("moved".to_string(), two))),
            5 => objects.extend(["pair a", "pair b"].map(|name| (name.to_string(), new))),
            _ => drop(objects.remove("moved")),
        }
    }
    objects
}

/// Returns the value and length of the vector made by a change: up to 240 KiB.
fn content_of(change: u64) -> (u64, usize) {
    (change, (1000 + change * 977 % 29_989) as usize)
}

fn change_objects(store: &Store, change: u64) -> Result<(), Error> {
    let (value, times) = content_of(change);
    let content = || from_iter(std::iter::repeat_n(value, times));
    match change % CHANGES_CYCLE {
        1 | 3 => {
            mark("replace", change);
            store.replace::<PVec<u64>, _>("one", content())
        }
        2 => {
            mark("create", change);
            store.create::<PVec<u64>, _>("two", content())
        }
        4 => {
            mark("rename", change);
            store.rename("two", "moved")
        }
        5 => {
            mark("batch", change);
            let mut batch = store.batch()?;
            batch.replace::<PVec<u64>, _>("pair a", content())?;
            batch.replace::<PVec<u64>, _>("pair b", content())?;
            batch.commit()
        }
        _ => {
            mark("remove", change);
            store.remove("moved")
        }
    }
}

#[test]
#[ignore = "a child of the kill tests"]
fn child_changes_objects() {
    let Some((store, _)) = begin() else { return };
    let first: u64 = argument(2).unwrap().parse().unwrap();
    for change in first.. {
        change_objects(&store, change).unwrap();
        mark("done", change);
    }
}

/// Reads repeatedly, and stores the newest number that it saw in a file next to the store.
#[test]
#[ignore = "a child of the kill tests"]
fn child_reads_states() {
    let Some((store, mut random)) = begin() else { return };
    let seen = std::fs::File::create(argument(2).unwrap()).unwrap();
    let mut newest = 0;
    mark("reading", 0);
    loop {
        let mut state = store.read::<State>(OBJECT).unwrap();
        for _ in 0..random.below(20) {
            check_whole(&state);
            assert!(state.number >= newest, "a state that was seen was lost");
            newest = state.number;
            seen.write_all_at(&newest.to_le_bytes(), 0).unwrap();
            std::thread::sleep(Duration::from_micros(random.below(2000)));
            let number = state.number;
            check_whole(&state);
            assert_eq!(state.number, number, "a snapshot changed under its reader");
            state = state.refresh().unwrap();
        }
    }
}
