//! Checks a text of 9 MB against WordNet's words: read from files into a table, or stored in a heap
//! with the table.
//!
//! The measured step writes no files: stores are filled once, before the rounds.

use crate::bench::{Bench, Machine};
use crate::compete::{Contestant, compete};
use crate::sections::standings;
use harness::Outcome;
use harness::goals::Goal;

const WASI: &str = "WASI, 4 KiB";
const HEAP: &str = "heap, guest";
const ALL: [&str; 5] = [WASI, "WASI, 64 KiB", HEAP, "file, native, 64 KiB", "heap, native"];
const STEP: &str = "run";

pub fn report(bench: &mut Bench) -> Outcome {
    if !bench.own.data.join("words.txt").exists() {
        println!(
            "*Skipped: the word list is missing. For Debian: `apt-get install wordnet-base`.*"
        );
        return Ok(());
    }
    let file = |name, machine, block| {
        let line = format!("spell-check file run --block-bytes {block}");
        Contestant::new(name, machine).step(STEP, line)
    };
    let heap = |name, machine| {
        let contestant = Contestant::new(name, machine).prepare("spell-check heap prepare");
        contestant.step(STEP, "spell-check heap run")
    };
    let contestants = [
        file(WASI, Machine::Guest, 4096),
        file(ALL[1], Machine::Guest, 65536),
        heap(HEAP, Machine::Guest),
        file(ALL[3], Machine::Native, 65536),
        heap(ALL[4], Machine::Native),
    ];
    let results = compete(bench, "spell-check", &contestants)?;

    let columns: [(&str, &[&str]); 3] =
        [("time", &["time"]), ("load", &["load"]), ("check", &["check"])];
    println!("{}", standings(&results, STEP, &ALL, &columns, HEAP)?);
    let ratios = results.ratios(WASI, HEAP, STEP, &["time"])?;
    let what = format!("spell-check: {WASI} / {HEAP}");
    println!("- {what}: {}", bench.goals.judge_in_cell(&what, &ratios, Goal::AtLeast(1.2)));
    Ok(())
}
