//! A small program that opens what `heap` built: what a program of its own has to wait for.
//!
//! `heap-opener evermap|mapped FOLDER NODES` opens the object `tree` of the store `FOLDER/store`, or
//! maps `FOLDER/bump`, and walks twice; it prints what the driver's own `open` child prints. The
//! driver is a large program: its first calls touch pages of code here and there, and each costs a
//! page fault that has nothing to do with what is opened. Programs of peers are small, too.

// The driver's modules have more than this program needs.
#![allow(dead_code)]

use std::hint::black_box;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use evermap::Store;

#[path = "../files.rs"]
mod files;

#[path = "../heap/bump.rs"]
mod bump;
#[path = "../heap/tree.rs"]
mod tree;

use tree::{Node, sum_of, value_of, walk};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

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
        // SAFETY: the file was built by the driver's bump pointer.
        return unsafe { measure(start, 0.0, bump::open(&folder.join("bump"))?, nodes) };
    }
    let store = Store::open(folder.join("store"))?;
    let store_us = us_since(start);
    let snapshot = store.read_raw("tree")?;
    // SAFETY: the driver made the tree the object's root; the snapshot keeps it as it is.
    unsafe { measure(start, store_us, snapshot.root().address.cast(), nodes) }
}

/// # Safety
/// `root` is null or the root of a tree that nobody changes.
unsafe fn measure(start: Instant, store_us: f64, root: *const Node, nodes: u64) -> Outcome {
    if root.is_null() {
        return Err("there is no tree".into());
    }
    // SAFETY: the caller promised it.
    let one = unsafe { (*root).value };
    let one_us = us_since(start);
    let mut walk_us = [0.0; 2];
    for us in &mut walk_us {
        let start = Instant::now();
        // SAFETY: the caller promised it.
        let sum = unsafe { walk(black_box(root)) };
        *us = us_since(start);
        if one != value_of(nodes / 2) || sum != sum_of(nodes) {
            return Err("the nodes are not what was built".into());
        }
    }
    println!("store_us {store_us}\none_us {one_us}");
    println!("first_us {}\nsecond_us {}", walk_us[0], walk_us[1]);
    Ok(())
}

fn us_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e6
}
