//! A new process: opens what was built, looks at one node, walks all nodes, and walks them again.
//!
//! The clock starts in `main`: loading the program and its libraries is not in it. What was built
//! is in the page cache. The limit maps a file of raw pointers at its address.

use std::path::Path;
use std::time::Instant;

use evermap::Store;

use super::Scale;
use super::bump;
use super::foreign::Programs;
use super::subjects::{OBJECT, STORE, Subject, bump_file};
use super::tree::{Node, sum_of, value_of, walk};
use super::{archive, databases};
use crate::Outcome;
use crate::children::{print, us_since};
use crate::files::Folder;
use crate::goals::Goals;
use crate::quiet::Awake;
use crate::samples::{Samples, figure, head, row};

const ROUNDS: usize = 21;
const ROUNDS_SLOW: usize = 5;

/// Who opens, and what was built by whom.
const TURNS: [(Subject, Subject); 9] = [
    (Subject::Evermap, Subject::Evermap),
    (Subject::BumpFile, Subject::BumpFile),
    (Subject::EvermapCommitted, Subject::Evermap),
    (Subject::Boost, Subject::Boost),
    (Subject::Rkyv, Subject::Rkyv),
    (Subject::RkyvChecked, Subject::Rkyv),
    (Subject::Lmdb, Subject::Lmdb),
    (Subject::Pmdk, Subject::Pmdk),
    (Subject::Redb, Subject::Redb),
];

/// What a child found.
pub struct Opened {
    one: u64,
    sum: u64,
    /// Opening the store, for those that have one.
    store_us: f64,
    one_us: f64,
    first_us: f64,
    second_us: f64,
}

impl Opened {
    /// Called once the value of the root's node is known; `walk` adds all values up.
    pub fn measure(
        start: Instant,
        one: u64,
        mut walk: impl FnMut() -> Outcome<u64>,
    ) -> Outcome<Opened> {
        let one_us = us_since(start);
        let start = Instant::now();
        let sum = walk()?;
        let first_us = us_since(start);
        let start = Instant::now();
        let again = walk()?;
        let second_us = us_since(start);
        match sum == again {
            true => Ok(Opened { one, sum, store_us: 0.0, one_us, first_us, second_us }),
            false => Err("the second walk found something else".into()),
        }
    }
}

#[derive(Default)]
struct Columns {
    store: Samples,
    one: Samples,
    first: Samples,
    second: Samples,
    ratio: Samples,
}

pub fn report(folder: &Folder, programs: &Programs, scale: Scale, goals: &mut Goals) -> Outcome {
    println!("\n### Opening in a new process\n");
    let mut turns = Vec::new();
    for (subject, builder) in TURNS {
        let place = folder.join(&format!("{builder:?}"));
        if !place.exists() {
            std::fs::create_dir(&place)?;
            if builder.run(programs, "build", &place, &[scale.nodes, 1])?.is_none() {
                continue;
            }
        }
        turns.push((subject, place, Columns::default()));
    }
    let _awake = Awake::new()?;
    for round in 0..scale.rounds(ROUNDS) {
        for (subject, place, columns) in &mut turns {
            let slow = matches!(subject, Subject::Redb | Subject::RkyvChecked);
            if slow && round >= ROUNDS_SLOW {
                continue;
            }
            if let Some(child) = subject.run(programs, "open", place, &[scale.nodes])? {
                let (first, second) = (child.figure("first_us")?, child.figure("second_us")?);
                columns.one.push(child.figure("one_us")?);
                // Programs of peers have no store.
                if *subject == Subject::Evermap {
                    columns.store.push(child.figure("store_us")?);
                }
                columns.first.push(first / 1e3);
                columns.second.push(second / 1e3);
                columns.ratio.push(first / second);
            }
        }
    }
    head(&["", "open and one node, us", "walk all, ms", "second walk, ms", "first / second"]);
    for (subject, _, columns) in &turns {
        let name = match subject {
            Subject::EvermapCommitted => "Evermap, opened for writing",
            Subject::BumpFile => "limit: raw pointers, the file mapped",
            subject => subject.name(),
        };
        row(&[
            name.to_string(),
            columns.one.to_string(),
            columns.first.to_string(),
            columns.second.to_string(),
            columns.ratio.to_string(),
        ]);
    }
    println!("\nThe store's part of Evermap's opening: {} us.", turns[0].2.store);
    judge(&turns[0].2, &turns[1].2, goals);
    for (_, place, _) in turns {
        // Two of them share what was built.
        if place.exists() {
            std::fs::remove_dir_all(place)?;
        }
    }
    Ok(())
}

fn judge(ours: &Columns, limit: &Columns, goals: &mut Goals) {
    goals.at_most(
        "new process: open and one node",
        (60.0, "us"),
        (ours.one.median(), format!("{} us", ours.one)),
        format!("the file mapped: {} us", figure(limit.one.median())),
    );
    let got = (ours.first.median(), format!("{} ms", ours.first));
    let second = (ours.second.median(), "a second walk, ms");
    goals.ratio("new process: walk all", 1.05, got.clone(), second);
    let limit = (limit.first.median(), "the file mapped, its first walk, ms");
    goals.ratio("the same beside the limit", 1.05, got, limit);
}

/// In a child: opens and walks.
pub fn child(start: Instant, subject: Subject, folder: &Path, nodes: u64) -> Outcome {
    let opened = match subject {
        Subject::Evermap => {
            let store = Store::open(folder.join(STORE))?;
            let store_us = us_since(start);
            let snapshot = store.read_raw(OBJECT)?;
            // SAFETY: the builder made the tree the object's root; the snapshot keeps it as it is.
            let opened = unsafe { raw(start, snapshot.root().address.cast()) };
            opened.map(|opened| Opened { store_us, ..opened })
        }
        Subject::EvermapCommitted => {
            let store = Store::open(folder.join(STORE))?;
            let session = store.write_raw(OBJECT)?;
            // SAFETY: as above; nobody stores to it.
            unsafe { raw(start, session.root().address.cast()) }
        }
        // SAFETY: the file was built by the same program's bump pointer.
        Subject::BumpFile => unsafe { raw(start, bump::open(&bump_file(folder))?) },
        Subject::Lmdb => databases::open_lmdb(start, folder, nodes),
        Subject::Redb => databases::open_redb(start, folder, nodes),
        Subject::Rkyv => archive::open(start, folder, false),
        Subject::RkyvChecked => archive::open(start, folder, true),
        _ => Err(format!("{} does not open", subject.name()).into()),
    }?;
    if opened.one != value_of(nodes / 2) || opened.sum != sum_of(nodes) {
        return Err("the nodes are not what was built".into());
    }
    print(&[
        ("store_us", opened.store_us),
        ("one_us", opened.one_us),
        ("first_us", opened.first_us),
        ("second_us", opened.second_us),
    ]);
    Ok(())
}

/// # Safety
/// `root` is null or the root of a tree that nobody changes.
unsafe fn raw(start: Instant, root: *const Node) -> Outcome<Opened> {
    if root.is_null() {
        return Err("there is no tree".into());
    }
    // SAFETY: the caller promised it.
    let one = unsafe { (*root).value };
    // SAFETY: the caller promised it.
    Opened::measure(start, one, || Ok(unsafe { walk(root) }))
}
