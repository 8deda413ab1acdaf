//! Frees the nodes of a tree in random order and builds the tree again. This measures the free
//! lists when blocks are scattered. Each measurement runs in a separate process.

use std::path::Path;
use std::ptr::null_mut;

use evermap::Store;

use crate::Scale;
use crate::allocators::Evermap;
use crate::foreign::Programs;
use crate::subjects::{Job, OBJECT, STORE, Subject, clock, with_allocator};
use crate::tree::{Allocate, Allocator, NODE_BYTES, Node, build, collect, sum_of, walk};
use harness::Outcome;
use harness::children::print;
use harness::files::{Folder, warm};
use harness::goals::Goals;
use harness::random::Random;
use harness::samples::{Samples, figure, head, row};

const ROUNDS: usize = 5;
const SUBJECTS: [Subject; 4] =
    [Subject::Evermap, Subject::EvermapCommitted, Subject::Glibc, Subject::Mimalloc];

#[derive(Default)]
struct Columns {
    free: Samples,
    again: Samples,
    both: Samples,
}

pub fn report(folder: &Folder, programs: &Programs, scale: Scale, goals: &mut Goals) -> Outcome {
    println!("\n### Freeing in random order, and allocating again\n");
    let mut all: [Columns; 4] = Default::default();
    for _ in 0..scale.rounds(ROUNDS) {
        for (subject, columns) in SUBJECTS.iter().zip(&mut all) {
            warm(3 * scale.nodes as usize * NODE_BYTES)?;
            let place = folder.join("churned");
            std::fs::create_dir(&place)?;
            if let Some(child) = subject.run(programs, "churn", &place, &[scale.nodes])? {
                let ns = |name| {
                    Ok::<f64, Box<dyn std::error::Error>>(
                        child.figure(name)? * 1e3 / scale.nodes as f64,
                    )
                };
                let (free, again) = (ns("free_us")?, ns("again_us")?);
                columns.free.push(free);
                columns.again.push(again);
                columns.both.push(free + again);
            }
            std::fs::remove_dir_all(&place)?;
        }
    }
    let mimalloc = all[3].both.median();
    head(&["", "free, ns a node", "allocate and link again, ns", "both, ns", "/ mimalloc"]);
    for (subject, columns) in SUBJECTS.iter().zip(&all) {
        row(&[
            subject.name().to_string(),
            columns.free.to_string(),
            columns.again.to_string(),
            columns.both.to_string(),
            figure(columns.both.median() / mimalloc),
        ]);
    }
    let got = (all[0].both.median(), format!("{} ns a node", all[0].both));
    goals.ratio(
        "free in random order, allocate again",
        0.8,
        got,
        (mimalloc, "mimalloc, ns a node"),
    );
    Ok(())
}

/// Runs as the child.
pub fn child(subject: Subject, folder: &Path, nodes: u64) -> Outcome {
    if subject != Subject::EvermapCommitted {
        return with_allocator(subject, folder, Churn { nodes, root: null_mut() });
    }
    let store = Store::create_new(folder.join(STORE))?;
    store.create_raw(OBJECT)?;
    let mut session = store.write_raw(OBJECT)?;
    let root = build(&Evermap(session.heap()), nodes, 1);
    session.commit()?;
    Churn { nodes, root }.run(&Evermap(session.heap()))?;
    Ok(session.close()?)
}

struct Churn {
    nodes: u64,
    /// Tree to free; null to build one.
    root: *mut Node,
}

impl Job for Churn {
    fn run<A: Allocator>(self, allocator: &A) -> Outcome {
        let root = if self.root.is_null() { build(allocator, self.nodes, 1) } else { self.root };
        let mut nodes = Vec::with_capacity(self.nodes as usize);
        // SAFETY: this function owns the tree.
        unsafe { collect(root, &mut nodes) };
        let mut random = Random::new(6);
        for last in (1..nodes.len()).rev() {
            nodes.swap(last, random.below(last as u64 + 1) as usize);
        }
        let ((), free_us) = clock(|| {
            let mut thread = allocator.thread();
            for node in &nodes {
                // SAFETY: each node is freed once, and the tree is not used afterwards.
                unsafe { thread.free(node.cast()) };
            }
        });
        let (root, again_us) = clock(|| build(allocator, self.nodes, 1));
        // SAFETY: the tree was just built.
        if unsafe { walk(root) } != sum_of(self.nodes) {
            return Err("the tree differs from the built one".into());
        }
        print(&[("free_us", free_us), ("again_us", again_us)]);
        Ok(())
    }
}
