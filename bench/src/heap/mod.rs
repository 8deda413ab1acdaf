//! Heap: allocating and freeing in an object, compared with allocators, persistent heaps and
//! databases; opening in a new process; and operations on whole objects, compared with plain files.
//!
//! Each measurement runs in a separate process, and compared ones take turns. Everything is in the
//! page cache.

mod allocators;
mod archive;
mod building;
mod bump;
mod churn;
mod databases;
mod figures;
mod foreign;
mod map;
mod metadata;
mod opening;
mod subjects;
mod threads;
mod tree;

use std::path::Path;
use std::time::Instant;

use crate::Outcome;
use crate::corpus::Corpus;
use crate::files::Folder;
use crate::goals::Goals;
use crate::parts::{self, Parts};
use foreign::Programs;
use subjects::Subject;

/// Amount of work.
#[derive(Clone, Copy)]
pub struct Scale {
    pub nodes: u64,
    pub divisor: usize,
    rounds_most: usize,
}

impl Scale {
    fn from_environment() -> Scale {
        match parts::quick() {
            true => Scale { nodes: 200_000, divisor: 10, rounds_most: 2 },
            false => Scale { nodes: 5_000_000, divisor: 1, rounds_most: usize::MAX },
        }
    }

    pub fn rounds(self, full: usize) -> usize {
        full.min(self.rounds_most)
    }
}

pub fn report(_: &Corpus) -> Outcome {
    let scale = Scale::from_environment();
    if scale.divisor > 1 {
        println!("*A quick run with fewer nodes and rounds: its figures mean nothing.*\n");
    }
    let folder = Folder::new("heap")?;
    let mut goals = Goals::default();
    let parts = Parts::from_environment();
    let programs = match parts.any(&["building", "reopening"]) {
        true => Programs::compile(&folder)?,
        false => Programs::default(),
    };
    if parts.any(&["building"]) {
        building::report(&folder, &programs, scale, &mut goals)?;
    }
    if parts.any(&["churn"]) {
        churn::report(&folder, &programs, scale, &mut goals)?;
    }
    if parts.any(&["threads"]) {
        threads::report(&folder, &programs, scale, &mut goals)?;
    }
    if parts.any(&["reopening"]) {
        opening::report(&folder, &programs, scale, &mut goals)?;
    }
    if parts.any(&["metadata"]) {
        metadata::report(&folder, &programs, scale, &mut goals)?;
    }
    if parts.any(&["map"]) {
        map::report(&folder, scale, &mut goals)?;
    }
    if parts.any(&["figures"]) {
        figures::report(&folder, scale, &mut goals)?;
    }
    goals.print();
    Ok(())
}

/// Runs as a child: performs one measurement of this section.
pub fn child(start: Instant, verb: &str, arguments: &[&str]) -> Outcome {
    let (names, numbers) = arguments.split_at(arguments.len().min(2));
    let &[subject, folder] = names else {
        return Err("a child needs a subject and a folder".into());
    };
    let folder = Path::new(folder);
    let numbers: Vec<u64> =
        numbers.iter().map(|number| number.parse()).collect::<Result<_, _>>()?;
    if verb == "steps" {
        return figures::child(subject, folder, &numbers);
    }
    let subject = Subject::parse(subject)?;
    match (verb, &numbers[..]) {
        ("build", &[nodes, threads]) => building::child(subject, folder, nodes, threads as usize),
        ("open", &[nodes]) => opening::child(start, subject, folder, nodes),
        ("churn", &[nodes]) => churn::child(subject, folder, nodes),
        ("threads", &[work, count, threads]) => {
            threads::child(subject, folder, work as usize, count, threads)
        }
        ("metadata", &[nodes]) => metadata::child(folder, nodes),
        _ => Err(format!("unknown child: heap {verb} {arguments:?}").into()),
    }
}
