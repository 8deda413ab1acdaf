//! Measures the time that a second visit saves, and its cost for the first visit.
//!
//! Each page is shown in new processes that take turns: cold without storing, cold with storing,
//! warm. The time runs from exec until the last pixel is in memory; no picture is written. Storing
//! comes after that, so its cost is how much later the process exits. Recording, which makes the
//! stored page block, is a part of every cold visit.

use crate::Bench;
use crate::command::{Painted, Start};
use crate::ratios::Ratios;
use crate::sections::{evermap, page_store};
use harness::Outcome;
use harness::samples::{Samples, figure, head, row};

const ROUNDS: usize = 11;
const STARTS: [Start; 3] = [Start::Cold, Start::ColdKeeping, Start::Warm];

const TITLES: [&str; 16] = [
    "page",
    "bytes",
    "cold",
    "warm",
    "cold / warm",
    "in the process: cold",
    "warm",
    "recording",
    "of cold, %",
    "to the exit: cold",
    "cold and stored",
    "ratio",
    "warm",
    "processor: cold, warm",
    "MiB: cold, warm",
    "faults: cold, warm",
];

#[derive(Default)]
struct Figures {
    shown_ms: Samples,
    whole_ms: Samples,
    inside_ms: Samples,
    cpu_ms: Samples,
    record_ms: Samples,
    rss_mib: Samples,
    faults: Samples,
}

impl Figures {
    fn push(&mut self, painted: &Painted) {
        let Painted { shown, ended, report } = painted;
        self.shown_ms.push_ms(*shown);
        self.whole_ms.push_ms(ended.whole);
        self.inside_ms.push(report.total_ms);
        self.cpu_ms.push(ended.cost.cpu_ms());
        self.record_ms.push(report.record_ms);
        self.rss_mib.push(ended.cost.rss_max_bytes as f64 / f64::from(1 << 20));
        self.faults.push(ended.cost.faults() as f64);
    }
}

pub fn report(bench: &mut Bench) -> Outcome {
    let Some(evermap) = evermap(bench) else { return Ok(()) };
    let (page_store, _folder) = page_store(bench, evermap)?;
    let rounds = bench.options.rounds_or(ROUNDS, 1);
    println!("{rounds} rounds in turns. Times in ms: median (min-max).\n");
    head(&TITLES);
    let [mut saved, mut inside, mut recording, mut cost] = [(); 4].map(|()| Ratios::default());
    for page in &bench.own.pages {
        page_store.keep(page)?;
        let mut of: [Figures; 3] = Default::default();
        for _ in 0..rounds {
            for (start, of) in STARTS.into_iter().zip(&mut of) {
                of.push(&page_store.time(page, start)?);
            }
        }
        let [cold, kept, warm] = &of;
        let ratio = cold.shown_ms.median() / warm.shown_ms.median();
        let recorded = 100.0 * cold.record_ms.median() / cold.shown_ms.median();
        let share = kept.whole_ms.median() / cold.whole_ms.median();
        saved.push(&page.name, ratio);
        inside.push(&page.name, cold.inside_ms.median() / warm.inside_ms.median());
        recording.push(&page.name, recorded);
        cost.push(&page.name, share);
        let pair = |of: fn(&Figures) -> f64| format!("{}, {}", figure(of(cold)), figure(of(warm)));
        row(&[
            page.name.clone(),
            page.bytes.to_string(),
            cold.shown_ms.to_string(),
            warm.shown_ms.to_string(),
            figure(ratio),
            cold.inside_ms.to_string(),
            warm.inside_ms.to_string(),
            cold.record_ms.to_string(),
            figure(recorded),
            cold.whole_ms.to_string(),
            kept.whole_ms.to_string(),
            figure(share),
            warm.whole_ms.to_string(),
            pair(|of| of.cpu_ms.median()),
            pair(|of| of.rss_mib.median()),
            pair(|of| of.faults.median()),
        ]);
    }
    println!("\n- cold / warm: {}", saved.summary());
    println!("- cold / warm in the process, from its first line: {}", inside.summary());
    println!("- recording, % of cold: {}", recording.summary_of_cost());
    println!("- to the exit, cold and stored / cold: {}", cost.summary_of_cost());
    Ok(())
}
