//! DNA: writes 64 MB line by line, reverses them, and counts in them; stdio's blocks have 512
//! bytes, 4 KiB and 64 KiB.
//!
//! Each contestant performs all three programs in every round, the later ones on the output of the
//! first: files and the store are new. Time is that of the work; the time until it is durable is in
//! a separate column.

use crate::bench::{Bench, Machine};
use crate::compete::{Contestant, compete};
use crate::sections::standings;
use harness::Outcome;
use harness::goals::Goal;

const WASI_4: &str = "WASI, 4 KiB";
const HEAP: &str = "heap, guest";
const FILE_4: &str = "file, native, 4 KiB";
const FILE_64: &str = "file, native, 64 KiB";
const ALL: [&str; 8] = [
    "WASI, 512 B",
    WASI_4,
    "WASI, 64 KiB",
    HEAP,
    "file, native, 512 B",
    FILE_4,
    FILE_64,
    "heap, native",
];
const BLOCKS: [usize; 3] = [512, 4096, 65536];

const FASTA: &str = "fasta";
const REVERSE: &str = "reverse-complement";
const COUNT: &str = "k-nucleotide";
/// Counting sequences that are long enough to need a hash table.
const COUNT_HASHED: &str = "k-nucleotide, hashed";
const STEPS: [(&str, &str, &str); 4] = [
    (FASTA, FASTA, ""),
    (REVERSE, REVERSE, ""),
    (COUNT, COUNT, " --k 6"),
    (COUNT_HASHED, COUNT, " --k 9"),
];

pub fn report(bench: &mut Bench) -> Outcome {
    let bytes = bench.options.scaled(64 << 20, 1 << 20);
    let contestant = |name, machine, variant: &str, options: &str| {
        STEPS.into_iter().fold(Contestant::new(name, machine), |so_far, (step, workload, more)| {
            so_far.step(step, format!("{workload} {variant} run --bytes {bytes}{options}{more}"))
        })
    };
    let mut contestants = Vec::new();
    for (machine, names) in [(Machine::Guest, &ALL[..4]), (Machine::Native, &ALL[4..])] {
        for (name, block) in names.iter().zip(BLOCKS) {
            contestants.push(contestant(
                *name,
                machine,
                "file",
                &format!(" --block-bytes {block}"),
            ));
        }
        contestants.extend(names.last().map(|name| contestant(*name, machine, "heap", "")));
    }
    let results = compete(bench, "dna", &contestants)?;

    for (step, durable) in [(FASTA, true), (REVERSE, true), (COUNT, false), (COUNT_HASHED, false)] {
        let columns: [(&str, &[&str]); 3] =
            [("time", &["time"]), ("durable", &["durable"]), ("both", &["time", "durable"])];
        let columns = if durable { &columns[..] } else { &columns[..1] };
        println!("### {step}, {bytes} bytes\n");
        println!("{}", standings(&results, step, &ALL, columns, HEAP)?);
    }
    let time = &["time"][..];
    let mut judge = |step: &str, name: &str, goal| -> Outcome {
        let ratios = results.ratios(name, HEAP, step, time)?;
        let what = format!("{step}: {name} / {HEAP}");
        println!("- {what}: {}", bench.goals.judge_in_cell(&what, &ratios, goal));
        Ok(())
    };
    judge(REVERSE, WASI_4, Goal::AtLeast(2.0))?;
    judge(REVERSE, FILE_4, Goal::AtLeast(1.0))?;
    judge(REVERSE, FILE_64, Goal::AtLeast(1.0))?;
    for step in [FASTA, COUNT, COUNT_HASHED] {
        judge(step, WASI_4, Goal::AtLeast(1.2))?;
    }
    Ok(())
}
