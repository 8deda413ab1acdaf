//! Builds five million linked nodes, allocated one by one, and makes them durable: in an object,
//! with the peers, and with the limits. Each runs in a separate process, in turns, with memory that
//! the host provides.
//!
//! Memory is new to all processes, so the time includes page faults. A node's memory is the growth
//! of the process while it builds; its disk space is the file's blocks after everything is closed.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::ptr::NonNull;
use std::time::Instant;

use evermap::Store;

use crate::Scale;
use crate::allocators::{Evermap, Glibc, Mimalloc};
use crate::bump::Bump;
use crate::foreign::Programs;
use crate::subjects::{OBJECT, STORE, Subject, bump_file};
use crate::tree::{Allocator, NODE_BYTES, Node, build, sum_of, walk};
use crate::{archive, databases};
use harness::Outcome;
use harness::children::{print, us_since};
use harness::files::{Anonymous, Folder, disk_bytes, warm};
use harness::goals::Goals;
use harness::quiet::Awake;
use harness::samples::{Samples, figure, head, row};

const ROUNDS: usize = 9;
/// Rounds of subjects that take seconds.
const ROUNDS_SLOW: usize = 3;
/// Nodes for PMDK with `msync`: it needs one or two calls for each node, so more nodes would take
/// hours.
const NODES_FLUSHED: u64 = 300;

/// Subjects and their number of threads.
const TURNS: [(Subject, u64); 16] = [
    (Subject::Evermap, 1),
    (Subject::Glibc, 1),
    (Subject::Mimalloc, 1),
    (Subject::BumpFile, 1),
    (Subject::BumpAnonymous, 1),
    (Subject::Write, 1),
    (Subject::Boost, 1),
    (Subject::Rkyv, 1),
    (Subject::Evermap, 2),
    (Subject::Glibc, 2),
    (Subject::Mimalloc, 2),
    (Subject::BumpFile, 2),
    (Subject::Boost, 2),
    (Subject::Lmdb, 1),
    (Subject::Redb, 1),
    (Subject::Pmdk, 1),
];

/// Measurements of a child.
#[derive(Default)]
pub struct Built {
    pub build_us: f64,
    /// Building and making durable; 0 if nothing is durable.
    pub durable_us: f64,
    /// Growth of the process while it built; 0 if unknown.
    pub resident_bytes: f64,
}

/// Samples of one subject and number of threads.
#[derive(Default)]
struct Columns {
    ns_a_node: Samples,
    durable_ms: Samples,
    resident: Samples,
    file: Samples,
}

pub fn report(folder: &Folder, programs: &Programs, scale: Scale, goals: &mut Goals) -> Outcome {
    println!("\n### Allocating and linking {} nodes of 64 bytes\n", scale.nodes);
    let _awake = Awake::new()?;
    let mut all: Vec<Columns> = TURNS.iter().map(|_| Columns::default()).collect();
    for round in 0..scale.rounds(ROUNDS) {
        for ((subject, threads), columns) in TURNS.iter().zip(&mut all) {
            if round < ROUNDS_SLOW || !slow(*subject) {
                once(*subject, *threads, folder, programs, scale.nodes, columns)?;
            }
        }
    }
    let mut flushed = Columns::default();
    let nodes = NODES_FLUSHED.min(scale.nodes);
    once(Subject::PmdkFlushed, 1, folder, programs, nodes, &mut flushed)?;
    let lines: Vec<(Subject, u64, &Columns)> = TURNS
        .iter()
        .zip(&all)
        .map(|((subject, threads), columns)| (*subject, *threads, columns))
        .chain([(Subject::PmdkFlushed, 1, &flushed)])
        .filter(|(.., columns)| columns.durable_ms.count() > 0 || columns.ns_a_node.count() > 0)
        .collect();
    print_table(&lines);
    println!("\nPMDK with `msync` built {nodes} nodes; its bytes are those of its pool.");
    judge(&lines, goals);
    Ok(())
}

fn slow(subject: Subject) -> bool {
    matches!(subject, Subject::Lmdb | Subject::Redb | Subject::Pmdk | Subject::Rkyv)
}

fn once(
    subject: Subject,
    threads: u64,
    folder: &Folder,
    programs: &Programs,
    nodes: u64,
    columns: &mut Columns,
) -> Outcome {
    // Twice the memory of the nodes.
    warm(2 * nodes as usize * NODE_BYTES)?;
    let place = folder.join("built");
    std::fs::create_dir(&place)?;
    if let Some(child) = subject.run(programs, "build", &place, &[nodes, threads])? {
        let push = |samples: &mut Samples, value: f64| {
            if value > 0.0 {
                samples.push(value);
            }
        };
        push(&mut columns.ns_a_node, child.figure("build_us")? * 1e3 / nodes as f64);
        push(&mut columns.durable_ms, child.figure("durable_us")? / 1e3);
        push(&mut columns.resident, child.figure("resident_bytes")? / nodes as f64);
        let file = disk_bytes(&place)? as f64 / nodes as f64;
        // The folder has no file if the subject stores nothing.
        push(&mut columns.file, if columns.durable_ms.count() > 0 { file } else { 0.0 });
    }
    Ok(std::fs::remove_dir_all(&place)?)
}

fn shown(samples: &Samples) -> String {
    if samples.count() == 0 { "-".to_string() } else { samples.to_string() }
}

fn print_table(lines: &[(Subject, u64, &Columns)]) {
    head(&[
        "",
        "threads",
        "allocate and link, ns a node",
        "/ glibc",
        "with a durable commit, ms",
        "/ floor",
        "memory a node, bytes",
        "file a node, bytes",
    ]);
    let floor = find(lines, Subject::Write, 1).map_or(f64::NAN, |c| c.durable_ms.median());
    for (subject, threads, columns) in lines {
        let glibc = find(lines, Subject::Glibc, *threads).map(|c| c.ns_a_node.median());
        let ratio = columns.ns_a_node.median() / glibc.unwrap_or(f64::NAN);
        let durable = columns.durable_ms.median() / floor;
        let comparable = *subject != Subject::PmdkFlushed && durable.is_finite();
        row(&[
            subject.name().to_string(),
            threads.to_string(),
            shown(&columns.ns_a_node),
            if ratio.is_finite() { figure(ratio) } else { "-".to_string() },
            shown(&columns.durable_ms),
            if comparable { figure(durable) } else { "-".to_string() },
            if columns.resident.count() > 0 {
                figure(columns.resident.median())
            } else {
                "-".into()
            },
            if columns.file.count() > 0 { figure(columns.file.median()) } else { "-".into() },
        ]);
    }
}

fn find<'a>(
    lines: &[(Subject, u64, &'a Columns)],
    subject: Subject,
    threads: u64,
) -> Option<&'a Columns> {
    lines.iter().find(|(s, t, _)| *s == subject && *t == threads).map(|(.., columns)| *columns)
}

fn judge(lines: &[(Subject, u64, &Columns)], goals: &mut Goals) {
    let Some(ours) = find(lines, Subject::Evermap, 1) else { return };
    let mut against = |threads: u64, subject: Subject, most: f64| {
        let ours = find(lines, Subject::Evermap, threads);
        if let (Some(ours), Some(theirs)) = (ours, find(lines, subject, threads)) {
            let what = format!("allocate and link, {threads} thread(s)");
            let got = (ours.ns_a_node.median(), format!("{} ns a node", ours.ns_a_node));
            let name = format!("{}, ns a node", subject.name());
            goals.ratio(&what, most, got, (theirs.ns_a_node.median(), &name));
        }
    };
    against(1, Subject::Glibc, 0.55);
    against(1, Subject::Mimalloc, 0.9);
    against(1, Subject::BumpFile, 1.5);
    against(2, Subject::Glibc, 0.45);
    if let Some(floor) = find(lines, Subject::Write, 1) {
        let got = (ours.durable_ms.median(), format!("{} ms", ours.durable_ms));
        let floor = (floor.durable_ms.median(), "write and fsync, ms");
        goals.ratio("allocate, link and commit durably", 1.1, got, floor);
    }
    let glibc = find(lines, Subject::Glibc, 1).map_or(f64::NAN, |c| c.resident.median());
    for (what, samples) in [("memory", &ours.resident), ("file", &ours.file)] {
        let over = |bytes: f64| (bytes / NODE_BYTES as f64 - 1.0) * 100.0;
        let got = over(samples.median());
        goals.at_most(
            &format!("{what} beyond the nodes' 64 bytes"),
            (3.0, "%"),
            (got, format!("{} %", figure(got))),
            format!("glibc's memory: {} %", figure(over(glibc))),
        );
    }
}

/// Runs as the child: builds and prints its measurements.
pub fn child(subject: Subject, folder: &Path, nodes: u64, threads: usize) -> Outcome {
    let built = match subject {
        Subject::Evermap => build_evermap(folder, nodes, threads)?,
        Subject::Glibc => build_with(&Glibc, nodes, threads, |_| Ok(()))?,
        Subject::Mimalloc => build_with(&Mimalloc, nodes, threads, |_| Ok(()))?,
        Subject::BumpAnonymous => build_with(&Bump::anonymous()?, nodes, threads, |_| Ok(()))?,
        Subject::BumpFile => {
            let bump = Bump::in_file(&bump_file(folder))?;
            build_with(&bump, nodes, threads, |root| Ok(bump.finish(root)?))?
        }
        Subject::Lmdb => databases::build_lmdb(folder, nodes)?,
        Subject::Redb => databases::build_redb(folder, nodes)?,
        Subject::Rkyv => archive::build(folder, nodes)?,
        Subject::Write => write(folder, nodes)?,
        _ => return Err(format!("{} does not build", subject.name()).into()),
    };
    // Memory-only subjects are never durable.
    let keeps = !matches!(subject, Subject::Glibc | Subject::Mimalloc | Subject::BumpAnonymous);
    print(&[
        ("build_us", built.build_us),
        ("durable_us", if keeps { built.durable_us } else { 0.0 }),
        ("resident_bytes", built.resident_bytes),
    ]);
    Ok(())
}

fn build_with<A: Allocator>(
    allocator: &A,
    nodes: u64,
    threads: usize,
    finish: impl FnOnce(*mut Node) -> Outcome,
) -> Outcome<Built> {
    let before = resident_bytes()?;
    let start = Instant::now();
    let root = build(allocator, nodes, threads);
    let build_us = us_since(start);
    // Takes some microseconds, which are in the next clock.
    let resident_bytes = resident_bytes()? - before;
    finish(root)?;
    let durable_us = us_since(start);
    // SAFETY: the tree was just built and does not change.
    match unsafe { walk(root) } == sum_of(nodes) {
        true => Ok(Built { build_us, durable_us, resident_bytes }),
        false => Err("the tree differs from the built one".into()),
    }
}

fn build_evermap(folder: &Path, nodes: u64, threads: usize) -> Outcome<Built> {
    let store = Store::create_new(folder.join(STORE))?;
    store.create_raw(OBJECT)?;
    let mut session = store.write_raw(OBJECT)?;
    let before = resident_bytes()?;
    let start = Instant::now();
    let root = build(&Evermap(session.heap()), nodes, threads);
    let build_us = us_since(start);
    let resident_bytes = resident_bytes()? - before;
    // SAFETY: the tag is not that of a Rust type.
    unsafe {
        session.set_root(NonNull::new(root.cast()), NODE_BYTES as u64, [0; 16], "a tree of nodes")
    }?;
    session.commit()?;
    let durable_us = us_since(start);
    // SAFETY: the tree was just built and does not change.
    if unsafe { walk(root) } != sum_of(nodes) {
        return Err("the tree differs from the built one".into());
    }
    session.close()?;
    Ok(Built { build_us, durable_us, resident_bytes })
}

/// Measures the floor: writes and syncs as many prepared bytes as the nodes have.
fn write(folder: &Path, nodes: u64) -> Outcome<Built> {
    let mut ready = Anonymous::new(nodes as usize * NODE_BYTES, true)?;
    let words = ready.words();
    // SAFETY: any word is valid as bytes, and the slice has the same extent.
    let bytes =
        unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), size_of_val(words)) };
    let mut file = File::create_new(folder.join("bytes"))?;
    let start = Instant::now();
    file.write_all(bytes)?;
    file.sync_all()?;
    Ok(Built { durable_us: us_since(start), ..Built::default() })
}

/// Returns the resident memory of this process, mapped files included.
pub fn resident_bytes() -> Outcome<f64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages = text.split_whitespace().nth(1).ok_or("/proc/self/statm is too short")?;
    Ok(pages.parse::<f64>()? * 4096.0)
}
