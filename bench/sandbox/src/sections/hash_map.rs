//! Measures a map of a million entries: building and storing it, and loading it again.
//!
//! Files are loaded into the standard library's map, in stdio's blocks of 4 and of 64 KiB; a heap
//! holds the map itself. The goals use the larger blocks, which are faster. A heap loads its pages
//! when they are touched, so its reload alone says little: consider reload and lookups together.

use crate::bench::{Bench, Machine};
use crate::compete::{Contestant, compete, times};
use harness::Outcome;
use harness::goals::Goal;
use harness::table::Table;

const WASI_4: &str = "WASI, 4 KiB";
const WASI_64: &str = "WASI, 64 KiB";
const HEAP: &str = "heap, guest";
const FILE: &str = "file, native";
const NATIVE: &str = "heap, native";
const ALL: [&str; 5] = [WASI_4, WASI_64, HEAP, FILE, NATIVE];

const PREPARE: &str = "prepare";
const FEW: &str = "few lookups";
const MANY: &str = "many lookups";

pub fn report(bench: &mut Bench) -> Outcome {
    let entries = bench.options.scaled(1_000_000, 20_000);
    let (few, many) = (entries / 10, entries);
    let contestant = |name, machine, variant: &str, options: &str| {
        let line = |step: &str| format!("hash-map {variant} {step}{options}");
        Contestant::new(name, machine)
            .step(PREPARE, format!("{} --entries {entries}", line("prepare")))
            .step(FEW, format!("{} --lookups {few}", line("run")))
            .step(MANY, format!("{} --lookups {many}", line("run")))
    };
    let contestants = [
        contestant(WASI_4, Machine::Guest, "file", " --block-bytes 4096"),
        contestant(WASI_64, Machine::Guest, "file", " --block-bytes 65536"),
        contestant(HEAP, Machine::Guest, "heap", ""),
        contestant(FILE, Machine::Native, "file", " --block-bytes 65536"),
        contestant(NATIVE, Machine::Native, "heap", ""),
    ];
    let results = compete(bench, "hash-map", &contestants)?;

    let few_title = format!("reload + {few} lookups");
    let many_title = format!("reload + {many} lookups");
    let rows: [(&str, &str, &[&str]); 6] = [
        ("build + store", PREPARE, &["time"]),
        ("durable", PREPARE, &["durable"]),
        ("build + store + durable", PREPARE, &["time", "durable"]),
        ("reload", FEW, &["load"]),
        (&few_title, FEW, &["time"]),
        (&many_title, MANY, &["time"]),
    ];
    let mut head = vec![format!("ms, {entries} entries")];
    head.extend(ALL.map(str::to_string));
    head.extend(["WASI 64 KiB / heap", "heap guest / native"].map(str::to_string));
    let mut table = Table::new(&head);
    for (title, step, whats) in rows {
        let mut row = vec![title.to_string()];
        for name in ALL {
            row.push(results.sums(name, step, whats)?.to_string());
        }
        let wasi = results.ratios(WASI_64, HEAP, step, whats)?;
        let native = results.ratios(HEAP, NATIVE, step, whats)?;
        if title == few_title {
            let what = |with: &str| format!("hash map, {title}: {with}");
            row.push(bench.goals.judge_in_cell(&what("WASI / heap"), &wasi, Goal::AtLeast(4.5)));
            let against = what("heap in the guest / native heap");
            row.push(bench.goals.judge_in_cell(&against, &native, Goal::AtMost(1.8)));
        } else {
            row.extend([times(&wasi), times(&native)]);
        }
        table.row(&row);
    }
    print!("{table}");
    Ok(())
}
