//! Reopens a store in a thousand new processes of two different programs, with randomised
//! addresses.
//!
//! Every process must find the store's addresses free and the right answer in the document. The
//! programs are this one and `reopener`, which maps memory and starts threads before it opens the
//! store. Each prints the address of its stack, which shows that the addresses were random.

use std::collections::HashSet;

use evermap::Store;
use evermap_dom::{Document, NewDocument, html};

use crate::Bench;
use crate::parsing::source;
use harness::files::text;
use harness::samples::{head, row};
use harness::{Outcome, children};

const PROCESSES: usize = 1000;
const STORES: usize = 10;

pub fn report(bench: &mut Bench) -> Outcome {
    let (corpus, folder) = (&bench.own, bench.temporary("reopening")?);
    let page = corpus.some_pages()[0];
    let tables = html::parse(&page.text, &Default::default())?;
    // Each store has its own addresses.
    let mut paths = Vec::new();
    for number in 0..STORES {
        let path = folder.join(&format!("store-{number}"));
        let document = NewDocument { tables: &tables, source: &source(page) };
        Store::create_new(&path)?.create::<Document, _>("page", document)?;
        paths.push(path);
    }
    let reopener = children::sibling("reopener")?;
    let processes = bench.options.scaled(PROCESSES, 20);
    let (mut failures, mut places, mut answers) = (Vec::new(), HashSet::new(), HashSet::new());
    for number in 0..processes {
        let path = text(&paths[number / 2 % STORES])?;
        let arguments = ["reopen", path, "page", "a[href]"];
        let outcome = match number % 2 {
            0 => children::run(&arguments),
            _ => children::run_program(&reopener, &arguments[1..]),
        };
        match outcome {
            Ok(child) => {
                places.insert(child.figure("place")?.to_bits());
                answers.insert(child.figure("found")?.to_bits());
            }
            Err(error) => failures.push(error.to_string()),
        }
    }
    let randomised = std::fs::read_to_string("/proc/sys/kernel/randomize_va_space")?;
    head(&[
        "processes",
        "stores",
        "failed",
        "different answers",
        "different stack addresses",
        "randomize_va_space",
    ]);
    let figures = [processes, STORES, failures.len(), answers.len(), places.len()];
    let mut cells: Vec<String> = figures.iter().map(usize::to_string).collect();
    cells.push(randomised.trim().to_string());
    row(&cells);
    for failure in failures.iter().take(5) {
        println!("- {failure}");
    }
    Ok(())
}
