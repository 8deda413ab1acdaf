//! A new process opens a built tree, reads one node, walks all nodes, and walks them again.
//!
//! The clock starts in `main`, so it excludes loading the program and its libraries. The data is in
//! the page cache. The limit maps a file of raw pointers at its address. The goals apply to a small
//! program (`heap-opener`), because the peers' programs are small and this one is large.

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use evermap::Store;

use crate::Scale;
use crate::bump;
use crate::foreign::Programs;
use crate::subjects::{OBJECT, STORE, Subject, bump_file};
use crate::tree::{Node, sum_of, value_of, walk};
use crate::{archive, databases};
use harness::Outcome;
use harness::children::{self, print, us_since};
use harness::files::{Folder, text};
use harness::goals::Goals;
use harness::quiet::Awake;
use harness::running::Ended;
use harness::samples::{Samples, figure, head, row};

const ROUNDS: usize = 21;
const ROUNDS_SLOW: usize = 5;

/// Subject that opens, and subject that built the data.
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

/// Measurements of a child.
pub struct Opened {
    one: u64,
    sum: u64,
    /// Time to open the store, for subjects that have one.
    store_us: f64,
    one_us: f64,
    first_us: f64,
    second_us: f64,
}

impl Opened {
    /// Walks twice. Called once the value of the root's node is known; `walk` returns the sum of
    /// all values.
    pub fn measure(
        start: Instant,
        one: u64,
        mut walk: impl FnMut() -> Outcome<u64>,
    ) -> Outcome<Opened> {
        let one_us = us_since(start);
        let start = Instant::now();
        let sum = walk()?;
        let first_us = us_since(start);
        // Keeps the compiler from reusing the first walk's result.
        let walk = black_box(&mut walk);
        let start = Instant::now();
        let again = walk()?;
        let second_us = us_since(start);
        match sum == again {
            true => Ok(Opened { one, sum, store_us: 0.0, one_us, first_us, second_us }),
            false => Err("the second walk has another sum".into()),
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

impl Columns {
    fn add(&mut self, child: &Ended) -> Outcome {
        let (first, second) = (child.figure("first_us")?, child.figure("second_us")?);
        self.one.push(child.figure("one_us")?);
        // The peers' programs have no store.
        if let Ok(store_us) = child.figure("store_us") {
            self.store.push(store_us);
        }
        self.first.push(first / 1e3);
        self.second.push(second / 1e3);
        self.ratio.push(first / second);
        Ok(())
    }

    fn row(&self, name: &str) {
        row(&[
            name.to_string(),
            self.one.to_string(),
            self.first.to_string(),
            self.second.to_string(),
            self.ratio.to_string(),
        ]);
    }
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
    let small = children::sibling("heap-opener")?;
    let mut smalls =
        [("evermap", 0), ("mapped", 1)].map(|(what, turn)| (what, turn, Columns::default()));
    let _awake = Awake::new()?;
    for round in 0..scale.rounds(ROUNDS) {
        for (subject, place, columns) in &mut turns {
            let slow = matches!(subject, Subject::Redb | Subject::RkyvChecked);
            if slow && round >= ROUNDS_SLOW {
                continue;
            }
            if let Some(child) = subject.run(programs, "open", place, &[scale.nodes])? {
                columns.add(&child)?;
            }
        }
        for (what, turn, columns) in &mut smalls {
            let (_, place, _) = &turns[*turn];
            let nodes = scale.nodes.to_string();
            columns.add(&children::run_program(&small, &[*what, text(place)?, &nodes])?)?;
        }
    }
    head(&["", "open and one node, us", "walk all, ms", "second walk, ms", "first / second"]);
    for (subject, _, columns) in &turns {
        columns.row(match subject {
            Subject::Evermap => "Evermap, in this large program",
            Subject::EvermapCommitted => "Evermap, opened for writing, in this large program",
            Subject::BumpFile => "limit: raw pointers, the file mapped, in this large program",
            subject => subject.name(),
        });
    }
    let [(_, _, small), (_, _, small_limit)] = &smalls;
    small.row("**Evermap**, in a small program");
    small_limit.row("limit: raw pointers, the file mapped, in a small program");
    println!(
        "\nOpening the store takes {} us of Evermap's time, in a small program {} us.",
        turns[0].2.store, small.store
    );
    judge(small, small_limit, goals);
    for (_, place, _) in turns {
        // Two subjects share one folder.
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
    goals.ratio("new process: walk all, against the limit", 1.05, got, limit);
}

/// Runs as the child: opens and walks.
pub fn child(start: Instant, subject: Subject, folder: &Path, nodes: u64) -> Outcome {
    let opened = match subject {
        Subject::Evermap => {
            let store = Store::open(folder.join(STORE))?;
            let store_us = us_since(start);
            let snapshot = store.read_raw(OBJECT)?;
            // SAFETY: the builder made the tree the object's root, and the snapshot keeps it
            // unchanged.
            let opened = unsafe { raw(start, snapshot.root().address.cast()) };
            opened.map(|opened| Opened { store_us, ..opened })
        }
        Subject::EvermapCommitted => {
            let store = Store::open(folder.join(STORE))?;
            let session = store.write_raw(OBJECT)?;
            // SAFETY: the builder made the tree the object's root, and no thread stores to it.
            unsafe { raw(start, session.root().address.cast()) }
        }
        // SAFETY: this program's bump pointer wrote the file.
        Subject::BumpFile => unsafe { raw(start, bump::open(&bump_file(folder))?) },
        Subject::Lmdb => databases::open_lmdb(start, folder, nodes),
        Subject::Redb => databases::open_redb(start, folder, nodes),
        Subject::Rkyv => archive::open(start, folder, false),
        Subject::RkyvChecked => archive::open(start, folder, true),
        _ => Err(format!("{} does not open", subject.name()).into()),
    }?;
    if opened.one != value_of(nodes / 2) || opened.sum != sum_of(nodes) {
        return Err("the nodes differ from the built ones".into());
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
/// `root` is null or the root of a tree that does not change during the call.
unsafe fn raw(start: Instant, root: *const Node) -> Outcome<Opened> {
    if root.is_null() {
        return Err("the tree has no root".into());
    }
    // SAFETY: the caller guarantees that `root` is the root of an unchanging tree.
    let one = unsafe { (*root).value };
    // SAFETY: the caller guarantees that `root` is the root of an unchanging tree.
    Opened::measure(start, one, || Ok(unsafe { walk(root) }))
}
