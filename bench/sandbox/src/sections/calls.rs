//! Measures the cost of one operation: reading or writing a block of a file, or copying it out of
//! or into a heap.
//!
//! Files are accessed by WASI in the calling thread (`allow_blocking_current_thread`), by WASI with
//! its default (other threads do the work), and natively; heaps in a guest and natively. Everything
//! is warm: the file is in the page cache, and the heap's pages are mapped. A figure is the median
//! of the workload's own rounds, whose number is that of the benchmark's rounds.

use crate::bench::{Bench, Machine};
use crate::compete::{Contestant, compete, times};
use harness::Outcome;
use harness::goals::Goal;
use harness::table::Table;

const WASI: &str = "WASI, blocking";
const HOPPING: &str = "WASI, default";
const FILES: &str = "files, native";
const WINDOW: &str = "window, guest";
const NATIVE: &str = "window, native";
const ALL: [&str; 5] = [WASI, HOPPING, FILES, WINDOW, NATIVE];

const STEP: &str = "run";
const BLOCKS: [(&str, usize); 3] = [("512 B", 512), ("4 KiB", 4096), ("64 KiB", 65536)];

pub fn report(bench: &mut Bench) -> Outcome {
    let bytes = bench.options.scaled(16 << 20, 1 << 20);
    let rounds = bench.options.scaled(3, 1);
    let line = |variant| format!("calls {variant} run --bytes {bytes} --rounds {rounds}");
    let contestants = [
        Contestant::new(WASI, Machine::Guest).step(STEP, line("file")),
        Contestant::new(HOPPING, Machine::GuestHopping).step(STEP, line("file")),
        Contestant::new(FILES, Machine::Native).step(STEP, line("file")),
        Contestant::new(WINDOW, Machine::Guest).step(STEP, line("heap")),
        Contestant::new(NATIVE, Machine::Native).step(STEP, line("heap")),
    ];
    let results = compete(bench, "calls", &contestants)?;

    let mut head = vec!["ns an operation"];
    head.extend(ALL);
    head.extend(["WASI default / window", "files native / window", "WASI blocking / window"]);
    let mut table = Table::new(&head);
    for operation in ["read", "write"] {
        for (block, bytes) in BLOCKS {
            let what = format!("{operation}_{bytes}");
            let mut row = vec![format!("{operation} {block}")];
            for name in ALL {
                row.push(results.sums(name, STEP, &[&what])?.to_string());
            }
            for name in [HOPPING, FILES] {
                row.push(times(&results.ratios(name, WINDOW, STEP, &[&what])?));
            }
            let ratios = results.ratios(WASI, WINDOW, STEP, &[&what])?;
            row.push(match goal(operation, bytes) {
                Some(goal) => bench.goals.judge_in_cell(
                    &format!("{operation} {block}: WASI / window"),
                    &ratios,
                    goal,
                ),
                None => times(&ratios),
            });
            table.row(&row);
        }
    }
    print!("{table}");
    let clock = |name| results.sums(name, STEP, &["clock"]);
    println!(
        "\n- reading the clock, the cheapest call, ns: in a guest {}, natively {}",
        clock(WASI)?,
        clock(FILES)?
    );
    Ok(())
}

fn goal(operation: &str, bytes: usize) -> Option<Goal> {
    match (operation, bytes) {
        ("read", 512) => Some(Goal::AtLeast(20.0)),
        ("write", 512) => Some(Goal::AtLeast(50.0)),
        _ => None,
    }
}
