//! What does the second visit save, and what does the first pay for it?
//!
//! Each page, in new processes that take turns: cold with nothing kept, cold and kept, warm. From exec to exit, with
//! the page painted into memory and no picture written. Keeping comes after the page is on the screen: what it costs
//! is what cold and kept takes longer than cold.

use crate::command::{Report, Start};
use crate::process::Ended;
use crate::ratios::Ratios;
use crate::samples::{Samples, figure, head, row};
use crate::sections::{evermap, shelf};
use crate::{Bench, Outcome};

const ROUNDS: usize = 11;
const STARTS: [Start; 3] = [Start::Cold, Start::ColdKeeping, Start::Warm];

const TITLES: [&str; 13] = [
    "page",
    "bytes",
    "cold",
    "cold and kept",
    "warm",
    "cold / warm",
    "to the last pixel, in the process: cold",
    "warm",
    "keeping",
    "of cold",
    "processor: cold, warm",
    "MiB: cold, warm",
    "faults: cold, warm",
];

#[derive(Default)]
struct Of {
    whole_ms: Samples,
    inside_ms: Samples,
    cpu_ms: Samples,
    keep_ms: Samples,
    rss_mib: Samples,
    faults: Samples,
}

impl Of {
    fn push(&mut self, ended: &Ended, report: &Report) {
        self.whole_ms.push_ms(ended.whole);
        self.inside_ms.push(report.total_ms);
        self.cpu_ms.push_ms(ended.usage.cpu);
        self.keep_ms.push(report.keep_ms);
        self.rss_mib.push(ended.usage.rss_max_bytes as f64 / f64::from(1 << 20));
        self.faults.push(ended.usage.faults as f64);
    }
}

pub fn report(bench: &Bench) -> Outcome {
    let Some(evermap) = evermap(bench) else { return Ok(()) };
    let (shelf, _folder) = shelf(evermap)?;
    let rounds = bench.options.rounds(ROUNDS);
    println!("{rounds} rounds in turns. Times in ms: median (least-most).\n");
    head(&TITLES);
    let (mut saved, mut inside, mut cost) =
        (Ratios::default(), Ratios::default(), Ratios::default());
    for page in &bench.pages {
        shelf.keep(page)?;
        let mut of: [Of; 3] = Default::default();
        for _ in 0..rounds {
            for (start, of) in STARTS.into_iter().zip(&mut of) {
                let (ended, report) = shelf.time(page, start)?;
                of.push(&ended, &report);
            }
        }
        let [cold, kept, warm] = &of;
        let ratio = cold.whole_ms.median() / warm.whole_ms.median();
        let share = kept.whole_ms.median() / cold.whole_ms.median();
        saved.push(&page.name, ratio);
        inside.push(&page.name, cold.inside_ms.median() / warm.inside_ms.median());
        cost.push(&page.name, share);
        let pair = |of: fn(&Of) -> f64| format!("{}, {}", figure(of(cold)), figure(of(warm)));
        row(&[
            page.name.clone(),
            page.bytes.to_string(),
            cold.whole_ms.to_string(),
            kept.whole_ms.to_string(),
            warm.whole_ms.to_string(),
            figure(ratio),
            cold.inside_ms.to_string(),
            warm.inside_ms.to_string(),
            kept.keep_ms.to_string(),
            figure(share),
            pair(|of| of.cpu_ms.median()),
            pair(|of| of.rss_mib.median()),
            pair(|of| of.faults.median()),
        ]);
    }
    println!("\n- cold / warm: {}", saved.summary());
    println!("- the same to the last pixel, in the process: {}", inside.summary());
    println!("- cold and kept / cold: {}", cost.summary_of_cost());
    Ok(())
}
