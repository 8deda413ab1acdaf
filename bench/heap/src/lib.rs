//! Measures heaps: allocating and freeing in an object, compared with allocators, persistent heaps
//! and databases; opening in a new process; and operations on whole objects, compared with plain
//! files.
//!
//! Each measurement runs in a separate process, and compared ones take turns. Everything is in the
//! page cache.

mod allocators;
mod archive;
mod building;
pub mod bump;
mod churn;
mod databases;
mod figures;
mod foreign;
mod map;
mod metadata;
mod opening;
mod subjects;
mod texts;
mod threads;
pub mod tree;

use std::path::Path;
use std::time::Instant;

use harness::Outcome;
use harness::area::{Area, unknown_child};
use harness::files::Folder;
use harness::goals::Goals;
use harness::machine::{self, Remarks};
use harness::options::{Choices, Options};

use foreign::Programs;
use subjects::Subject;

/// Bench that a section receives.
type Bench = harness::bench::Bench<Own>;

pub struct Own {
    scale: Scale,
    programs: Programs,
}

pub const AREA: Area<Own> = Area {
    name: "heap",
    choices: Choices::NONE,
    sections: &[
        ("building", |bench| part(bench, building::report)),
        ("churn", |bench| part(bench, churn::report)),
        ("threads", |bench| part(bench, threads::report)),
        ("reopening", |bench| part(bench, opening::report)),
        ("metadata", |bench| part(bench, metadata::report)),
        ("map", |bench| map::report(&bench.temporary("map")?, bench.own.scale, &mut bench.goals)),
        ("texts", |bench| {
            texts::report(&bench.temporary("texts")?, bench.own.scale, &mut bench.goals)
        }),
        ("figures", figures),
    ],
    start,
    child,
};

/// Amount of work.
#[derive(Clone, Copy)]
struct Scale {
    nodes: u64,
    divisor: usize,
    rounds_most: usize,
}

impl Scale {
    fn new(quick: bool) -> Scale {
        match quick {
            true => Scale { nodes: 200_000, divisor: 10, rounds_most: 2 },
            false => Scale { nodes: 5_000_000, divisor: 1, rounds_most: usize::MAX },
        }
    }

    fn rounds(self, full: usize) -> usize {
        full.min(self.rounds_most)
    }
}

fn start(options: Options) -> Outcome<Bench> {
    let own = Own { scale: Scale::new(options.quick), programs: Programs::default() };
    let mut bench = Bench::new(options, own)?;
    machine::describe(&mut bench, &Remarks::default())?;
    if bench.options.wants("building") || bench.options.wants("reopening") {
        bench.own.programs = Programs::compile(&bench.folder("programs")?)?;
    }
    Ok(bench)
}

fn part(
    bench: &mut Bench,
    report: fn(&Folder, &Programs, Scale, &mut Goals) -> Outcome,
) -> Outcome {
    let folder = bench.temporary("part")?;
    report(&folder, &bench.own.programs, bench.own.scale, &mut bench.goals)
}

fn figures(bench: &mut Bench) -> Outcome {
    let folder = bench.temporary("figures")?;
    figures::report(&folder, &bench.options.images, bench.own.scale, &mut bench.goals)
}

/// Runs as a child: performs one measurement of this section.
fn child(start: Instant, arguments: &[&str]) -> Outcome {
    let [verb, rest @ ..] = arguments else { return unknown_child(arguments) };
    let (names, numbers) = rest.split_at(rest.len().min(2));
    let &[subject, folder] = names else {
        return Err("a child needs a subject and a folder".into());
    };
    let folder = Path::new(folder);
    let numbers: Vec<u64> =
        numbers.iter().map(|number| number.parse()).collect::<Result<_, _>>()?;
    if *verb == "steps" {
        return figures::child(subject, folder, &numbers);
    }
    if verb.starts_with("texts-") {
        return texts::child(start, verb, subject, folder, &numbers);
    }
    let subject = Subject::parse(subject)?;
    match (*verb, &numbers[..]) {
        ("build", &[nodes, threads]) => building::child(subject, folder, nodes, threads as usize),
        ("open", &[nodes]) => opening::child(start, subject, folder, nodes),
        ("churn", &[nodes]) => churn::child(subject, folder, nodes),
        ("threads", &[work, count, threads]) => {
            threads::child(subject, folder, work as usize, count, threads)
        }
        ("metadata", &[nodes]) => metadata::child(folder, nodes),
        _ => unknown_child(arguments),
    }
}
