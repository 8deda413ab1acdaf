//! Measures the benefit of each stored layer.
//!
//! The starts are: cold, with the document's tables alone (a), with the page block too (ab), and
//! with the painted strips (abc). New processes run in turns, from exec until the last pixel is in
//! memory.

use crate::Bench;
use crate::command::{Painted, Start};
use crate::ratios::Ratios;
use crate::sections::{evermap, page_store};
use harness::Outcome;
use harness::samples::{Samples, figure, head, row};

const ROUNDS: usize = 11;
const STARTS: [(&str, Start); 4] = [
    ("nothing", Start::Cold),
    ("a", Start::Layers("a")),
    ("ab", Start::Layers("ab")),
    ("abc", Start::Layers("abc")),
];

pub fn report(bench: &mut Bench) -> Outcome {
    let Some(evermap) = evermap(bench) else { return Ok(()) };
    let (page_store, _folder) = page_store(bench, evermap)?;
    let rounds = bench.options.rounds_or(ROUNDS, 1);
    println!(
        "{rounds} rounds in turns. Times in ms: median (min-max); x: speed-up over nothing.\n"
    );
    head(&[
        "page",
        "nothing",
        "a: document",
        "x",
        "ab: page block",
        "x",
        "abc: strips",
        "x",
        "painting: ab, abc",
    ]);
    let mut ratios: [Ratios; 3] = Default::default();
    for page in &bench.own.pages {
        page_store.keep(page)?;
        let mut whole: [Samples; 4] = Default::default();
        let mut paint: [Samples; 4] = Default::default();
        for _ in 0..rounds {
            for (index, (_, start)) in STARTS.into_iter().enumerate() {
                let Painted { shown, report, .. } = page_store.time(page, start)?;
                whole[index].push_ms(shown);
                paint[index].push(report.paint_ms);
            }
        }
        let mut cells = vec![page.name.clone(), whole[0].to_string()];
        for (layers, ratios) in whole[1..].iter().zip(&mut ratios) {
            let ratio = whole[0].median() / layers.median();
            ratios.push(&page.name, ratio);
            cells.extend([layers.to_string(), figure(ratio)]);
        }
        cells.push(format!("{}, {}", figure(paint[2].median()), figure(paint[3].median())));
        row(&cells);
    }
    println!();
    for ((name, _), ratios) in STARTS[1..].iter().zip(&ratios) {
        println!("- {name}: {}", ratios.summary());
    }
    Ok(())
}
