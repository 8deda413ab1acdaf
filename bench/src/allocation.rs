//! Five million nodes of 64 bytes, allocated one by one and linked: in an object, and by glibc.
//!
//! Each in a process of its own, in turns. Memory is new in both: the time has the page faults in
//! it. The object is committed afterwards, with a clock of its own.

use std::path::Path;
use std::ptr::NonNull;
use std::time::Instant;

use evermap::Store;

use crate::children::{print, us_since};
use crate::corpus::Corpus;
use crate::files::{Folder, text};
use crate::quiet::Awake;
use crate::samples::{Samples, figure, head, row};
use crate::{Outcome, children};

const NODES: usize = 5_000_000;
const ROUNDS: usize = 9;

#[repr(C)]
struct Node {
    next: Option<NonNull<Node>>,
    values: [u64; 7],
}
const _: () = assert!(size_of::<Node>() == 64);

pub fn report(_: &Corpus) -> Outcome {
    let folder = Folder::new("allocation")?;
    let _awake = Awake::new()?;
    let mut of: [Samples; 3] = Default::default();
    let [heap, commit, malloc] = &mut of;
    for round in 0..ROUNDS {
        let path = folder.join(&format!("store-{round}"));
        let child = children::run(&["allocate-heap", text(&path)?])?;
        heap.push(child.figure("ns_per_node")?);
        commit.push(child.figure("commit_us")? / 1e3);
        std::fs::remove_dir_all(&path)?;
        malloc.push(children::run(&["allocate-malloc"])?.figure("ns_per_node")?);
    }
    head(&["", "allocate and link, ns a node", "ratio", "commit, ms"]);
    let ratio = figure(heap.median() / malloc.median());
    row(&["evermap, in an object".into(), heap.to_string(), ratio, commit.to_string()]);
    row(&["glibc malloc".into(), malloc.to_string(), "1".into(), "-".into()]);
    Ok(())
}

/// In a child: in an object of a new store.
pub fn child_heap(path: &str) -> Outcome {
    let store = Store::create_new(Path::new(path))?;
    store.create::<u64, _>("nodes", 0)?;
    let mut session = store.write::<u64>("nodes")?;
    let start = Instant::now();
    let heap = session.heap();
    let last = link(|| heap.allocate(size_of::<Node>(), align_of::<Node>()).ok());
    let ns_per_node = us_since(start) * 1e3 / NODES as f64;
    *session.root_mut() = last.map_or(0, |last| last.addr().get() as u64);
    let start = Instant::now();
    session.commit()?;
    print(&[("ns_per_node", ns_per_node), ("commit_us", us_since(start))]);
    session.close()?;
    Ok(())
}

/// In a child: by the C library.
pub fn child_malloc() -> Outcome {
    let start = Instant::now();
    // SAFETY: any size may be asked for.
    let last = link(|| NonNull::new(unsafe { libc::malloc(size_of::<Node>()) }.cast()));
    let ns_per_node = us_since(start) * 1e3 / NODES as f64;
    print(&[("ns_per_node", ns_per_node)]);
    match last {
        Some(_) => Ok(()),
        None => Err("no memory".into()),
    }
}

/// Allocates the nodes, each linked to the one before; gives the last, or nothing when there was
/// no memory.
fn link(mut allocate: impl FnMut() -> Option<NonNull<u8>>) -> Option<NonNull<Node>> {
    let mut last = None;
    for number in 0..NODES {
        let node: NonNull<Node> = allocate()?.cast();
        // SAFETY: the block was just allocated with a node's size and alignment.
        unsafe { node.write(Node { next: last, values: [number as u64; 7] }) };
        last = Some(node);
    }
    last
}
