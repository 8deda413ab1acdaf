//! Opens the data that `heap` built, as a small program would.
//!
//! `heap-opener evermap|mapped FOLDER NODES` opens the object `tree` of the store `FOLDER/store`,
//! or maps `FOLDER/bump`, and walks the tree twice. It prints the same figures as the driver's
//! `open` child. The driver is a large program: its first calls touch scattered pages of code, and
//! each costs a page fault that does not depend on the opened data. Programs of peers are small,
//! too.

use std::hint::black_box;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use evermap::Store;

use bench_heap::bump;
use bench_heap::tree::{Node, sum_of, value_of, walk};
use harness::Outcome;
use harness::children::us_since;

fn main() -> ExitCode {
    let start = Instant::now();
    match open(start) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("heap-opener: {error}");
            ExitCode::FAILURE
        }
    }
}

fn open(start: Instant) -> Outcome {
    let mut arguments = std::env::args().skip(1);
    let (Some(what), Some(folder), Some(nodes)) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err("usage: heap-opener evermap|mapped FOLDER NODES".into());
    };
    let folder = Path::new(&folder);
    let nodes = nodes.parse()?;
    if what == "mapped" {
        // SAFETY: the driver's bump pointer wrote the file.
        return unsafe { measure(start, 0.0, bump::open(&folder.join("bump"))?, nodes) };
    }
    let store = Store::open(folder.join("store"))?;
    let store_us = us_since(start);
    let snapshot = store.read_raw("tree")?;
    // SAFETY: the driver made the tree the object's root, and the snapshot keeps it unchanged.
    unsafe { measure(start, store_us, snapshot.root().address.cast(), nodes) }
}

/// # Safety
/// `root` is null or the root of a tree that does not change during the call.
unsafe fn measure(start: Instant, store_us: f64, root: *const Node, nodes: u64) -> Outcome {
    if root.is_null() {
        return Err("the tree has no root".into());
    }
    // SAFETY: the caller guarantees that `root` is the root of an unchanging tree.
    let one = unsafe { (*root).value };
    let one_us = us_since(start);
    let mut walk_us = [0.0; 2];
    for us in &mut walk_us {
        let start = Instant::now();
        // SAFETY: the caller guarantees that `root` is the root of an unchanging tree.
        let sum = unsafe { walk(black_box(root)) };
        *us = us_since(start);
        if one != value_of(nodes / 2) || sum != sum_of(nodes) {
            return Err("the nodes differ from the built ones".into());
        }
    }
    println!("store_us {store_us}\none_us {one_us}");
    println!("first_us {}\nsecond_us {}", walk_us[0], walk_us[1]);
    Ok(())
}
