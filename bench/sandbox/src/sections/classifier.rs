//! Loads a model that was trained on 9,900 posts, and classifies 100 mails: from a custom format
//! (`compact`), by a widely used serialiser (`postcard`), and from a heap.
//!
//! The measured step writes no files: models are trained and stored once, before the rounds.

use crate::bench::{Bench, Machine};
use crate::compete::{Contestant, compete};
use crate::sections::standings;
use harness::Outcome;
use harness::goals::Goal;

const COMPACT: &str = "WASI, compact";
const POSTCARD: &str = "WASI, postcard";
const HEAP: &str = "heap, guest";
const ALL: [&str; 6] =
    [COMPACT, POSTCARD, HEAP, "compact, native", "postcard, native", "heap, native"];
const STEP: &str = "run";

pub fn report(bench: &mut Bench) -> Outcome {
    let mails = bench.options.scaled(100, 20);
    let contestant = |name, machine, variant: &str| {
        let contestant = Contestant::new(name, machine);
        let line = |step: &str| format!("classifier {variant} {step} --block-bytes 4096");
        let contestant = contestant.prepare(format!("{} --mails {mails}", line("prepare")));
        contestant.step(STEP, line("run"))
    };
    let machines = [Machine::Guest, Machine::Native].into_iter().flat_map(|machine| [machine; 3]);
    let variants = ["compact", "postcard", "heap"].into_iter().cycle();
    let contestants: Vec<Contestant> = ALL
        .into_iter()
        .zip(machines.zip(variants))
        .map(|(name, (machine, variant))| contestant(name, machine, variant))
        .collect();
    let results = compete(bench, "classifier", &contestants)?;

    let columns: [(&str, &[&str]); 3] =
        [("time", &["time"]), ("load", &["load"]), ("classify", &["classify"])];
    println!("{mails} mails.\n\n{}", standings(&results, STEP, &ALL, &columns, HEAP)?);
    for name in [COMPACT, POSTCARD] {
        let ratios = results.ratios(name, HEAP, STEP, &["time"])?;
        let what = format!("classifier: {name} / {HEAP}");
        println!("- {what}: {}", bench.goals.judge_in_cell(&what, &ratios, Goal::AtLeast(2.0)));
    }
    Ok(())
}
