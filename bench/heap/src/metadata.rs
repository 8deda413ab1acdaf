//! Counts the pages of metadata that 1,000 allocations add to a commit.
//!
//! An object of five million nodes is committed and opened again, so that all its pages are the
//! file's. Then blocks are allocated, and nothing is stored in them. Each page of the object that
//! is now a private copy of this process (`/proc/self/pagemap`) was therefore changed by the
//! allocator. After the commit, pages that the engine itself changes (page checksums, superblock)
//! are among them. The kernel counts the bytes that the engine wrote to the log (`wchar` of
//! `/proc/self/io`).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr::NonNull;

use evermap::{Heap, RawSession, Store};

use crate::Scale;
use crate::allocators::Evermap;
use crate::foreign::Programs;
use crate::subjects::{OBJECT, STORE, Subject};
use crate::tree::{NODE_BYTES, Node, build, collect};
use harness::Outcome;
use harness::children::print;
use harness::files::Folder;
use harness::goals::Goals;
use harness::random::Random;
use harness::samples::{figure, head, row};

const CHANGES: usize = 1000;
const GOAL_PAGES: f64 = 40.0;
/// One in this many nodes is freed, to leave holes.
const FREED_PART: usize = 10;
const PAGE_BYTES: u64 = 4096;

/// Cases: title, prefix of the child's figures, and whether a goal applies.
const CASES: [(&str, &str, bool); 5] = [
    ("new object: allocate 1,000 of 64 bytes", "fresh", true),
    ("new object: allocate 1,000 of 16 to 4,096 bytes", "fresh_sizes", true),
    ("10 % freed at random: allocate 1,000 of 64 bytes", "holes", true),
    ("10 % freed at random: allocate 1,000 of 16 to 4,096 bytes", "holes_sizes", true),
    ("free 1,000 nodes at random", "frees", false),
];

pub fn report(folder: &Folder, programs: &Programs, scale: Scale, goals: &mut Goals) -> Outcome {
    println!("\n### Pages of metadata dirtied by {CHANGES} allocations\n");
    let place = folder.join("metadata");
    std::fs::create_dir(&place)?;
    let child = Subject::Evermap.run(programs, "metadata", &place, &[scale.nodes])?;
    let child = child.ok_or("Evermap is missing")?;
    head(&["", "pages by the allocator", "with the commit's own", "written by the commit, bytes"]);
    for (title, name, judged) in CASES {
        let pages = child.figure(&format!("{name}_pages"))?;
        row(&[
            title.to_string(),
            figure(pages),
            figure(child.figure(&format!("{name}_committed_pages"))?),
            figure(child.figure(&format!("{name}_bytes"))?),
        ]);
        if judged {
            let got = (pages, format!("{} pages", figure(pages)));
            let what = format!("metadata, {title}");
            goals.at_most(&what, (GOAL_PAGES, "pages"), got, "-".to_string());
        }
    }
    Ok(std::fs::remove_dir_all(&place)?)
}

/// Runs as the child: builds the object, and measures all cases, each from a commit on.
pub fn child(folder: &Path, nodes: u64) -> Outcome {
    let store = Store::create_new(folder.join(STORE))?;
    store.create_raw(OBJECT)?;
    let mut session = store.write_raw(OBJECT)?;
    let root = build(&Evermap(session.heap()), nodes, 1);
    // SAFETY: the tag is not that of a Rust type.
    unsafe {
        session.set_root(NonNull::new(root.cast()), NODE_BYTES as u64, [0; 16], "a tree of nodes")
    }?;
    session.commit()?;
    session.close()?;
    let mut random = Random::new(5);
    let node = |_: &mut Random| NODE_BYTES;
    let some = |random: &mut Random| (16 + random.below(4081)) as usize;
    let mut figures = Vec::new();
    let mut case = |name: &str, work: &mut dyn FnMut(&Heap) -> Outcome| -> Outcome {
        let mut session = store.write_raw(OBJECT)?;
        figures.extend(measure(name, &mut session, work)?);
        Ok(session.close()?)
    };
    case("fresh", &mut |heap| allocate(heap, &mut random, node))?;
    case("fresh_sizes", &mut |heap| allocate(heap, &mut random, some))?;
    let mut left = make_holes(&store, &mut random)?;
    case("holes", &mut |heap| allocate(heap, &mut random, node))?;
    case("holes_sizes", &mut |heap| allocate(heap, &mut random, some))?;
    case("frees", &mut |heap| {
        for node in left.drain(..CHANGES.min(left.len())) {
            // SAFETY: the node is allocated, and the tree is no longer used.
            unsafe { heap.free(node) };
        }
        Ok(())
    })?;
    let pairs: Vec<(&str, f64)> = figures.iter().map(|(name, f)| (name.as_str(), *f)).collect();
    print(&pairs);
    Ok(())
}

fn allocate(heap: &Heap, random: &mut Random, size: impl Fn(&mut Random) -> usize) -> Outcome {
    for _ in 0..CHANGES {
        heap.allocate(size(random), 8)?;
    }
    Ok(())
}

/// Frees one in ten nodes, chosen at random, and commits. Returns the others in random order.
fn make_holes(store: &Store, random: &mut Random) -> Outcome<Vec<NonNull<u8>>> {
    let mut session = store.write_raw(OBJECT)?;
    let mut nodes: Vec<*mut Node> = Vec::new();
    // SAFETY: the root is the built tree, which does not change during the call.
    unsafe { collect(session.root().address.cast(), &mut nodes) };
    for last in (1..nodes.len()).rev() {
        nodes.swap(last, random.below(last as u64 + 1) as usize);
    }
    let mut nodes: Vec<NonNull<u8>> =
        nodes.into_iter().filter_map(|node| NonNull::new(node.cast())).collect();
    // SAFETY: the tag is not that of a Rust type.
    unsafe { session.set_root(None, 0, [0; 16], "") }?;
    for node in nodes.drain(..nodes.len() / FREED_PART) {
        // SAFETY: the node is allocated, and the tree is no longer used.
        unsafe { session.heap().free(node) };
    }
    session.commit()?;
    session.close()?;
    Ok(nodes)
}

fn measure(
    name: &str,
    session: &mut RawSession,
    work: &mut dyn FnMut(&Heap) -> Outcome,
) -> Outcome<[(String, f64); 3]> {
    let own = own_pages(session)?;
    work(session.heap())?;
    let pages = own_pages(session)? - own;
    let written = written_bytes()?;
    session.commit()?;
    let bytes = written_bytes()? - written;
    let committed = own_pages(session)? - own;
    Ok([
        (format!("{name}_pages"), pages),
        (format!("{name}_committed_pages"), committed),
        (format!("{name}_bytes"), bytes),
    ])
}

/// Counts the pages of the object's file that are private copies of this process.
fn own_pages(session: &RawSession) -> Outcome<f64> {
    const PRESENT: u64 = 1 << 63;
    const OF_FILE: u64 = 1 << 61;
    let map = File::open("/proc/self/pagemap")?;
    let mut count = 0;
    for (base, length) in session.info()?.regions {
        let mut entries = vec![0; (length.div_ceil(PAGE_BYTES) * 8) as usize];
        map.read_exact_at(&mut entries, base / PAGE_BYTES * 8)?;
        let (entries, _) = entries.as_chunks::<8>();
        let own = |entry: &&[u8; 8]| u64::from_ne_bytes(**entry) & (PRESENT | OF_FILE) == PRESENT;
        count += entries.iter().filter(own).count();
    }
    Ok(count as f64)
}

/// Returns the bytes that this process passed to `write` and similar calls.
fn written_bytes() -> Outcome<f64> {
    let io = std::fs::read_to_string("/proc/self/io")?;
    let line = io.lines().find_map(|line| line.strip_prefix("wchar: "));
    Ok(line.ok_or("/proc/self/io has no wchar")?.trim().parse()?)
}
