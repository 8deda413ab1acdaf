//! Compresses 3,001 files of a browser's cache, each into a separate output: read and written,
//! mapped and written, or named blocks of a heap.
//!
//! A store takes the whole window of guest addresses, so this section has its own stores: a new one
//! for each run, into which the cache is copied first (not measured). In guests, `mmap` is the
//! emulation of their C library: it reads the file.

use crate::bench::{Bench, Machine};
use crate::compete::{Contestant, compete, times};
use crate::sections::standings;
use harness::Outcome;
use harness::goals::Goal;

const WASI: &str = "WASI, posix";
const HEAP: &str = "heap, guest";
const ALL: [&str; 6] = [WASI, "WASI, mmap", HEAP, "posix, native", "mmap, native", "heap, native"];
const STEP: &str = "run";

pub fn report(bench: &mut Bench) -> Outcome {
    let file = |name, machine, variant: &str| {
        let line = format!("snappy {variant} run --block-bytes 4096");
        Contestant::new(name, machine).step(STEP, line)
    };
    let heap = |name, machine| {
        let contestant = Contestant::new(name, machine).step("copy", "snappy heap prepare");
        contestant.step(STEP, "snappy heap run")
    };
    let contestants = [
        file(ALL[0], Machine::Guest, "posix"),
        file(ALL[1], Machine::Guest, "mmap"),
        heap(HEAP, Machine::Guest),
        file(ALL[3], Machine::Native, "posix"),
        file(ALL[4], Machine::Native, "mmap"),
        heap(ALL[5], Machine::Native),
    ];
    let results = compete(bench, "snappy", &contestants)?;

    let columns: [(&str, &[&str]); 3] =
        [("time", &["time"]), ("durable", &["durable"]), ("both", &["time", "durable"])];
    println!("{}", standings(&results, STEP, &ALL, &columns, HEAP)?);
    let files = results.sums(WASI, STEP, &["files"])?.median();
    let ratios = results.ratios(WASI, HEAP, STEP, &["time"])?;
    let what = format!("snappy, {files} files: {WASI} / {HEAP}");
    println!("- {what}: {}", bench.goals.judge_in_cell(&what, &ratios, Goal::AtLeast(2.5)));
    let both = results.ratios(WASI, HEAP, STEP, &["time", "durable"])?;
    println!("- {WASI} / {HEAP}, until results are durable: {}", times(&both));
    Ok(())
}
