//! Measures all engines inside a running process (`in_process.rs`): warm, not synced, without
//! peers.

use std::path::Path;

use harness::Outcome;
use harness::bench::skip_on_error;
use harness::table::Table;
use harness::units::size;

use crate::bench::Bench;
use crate::corpus::{Entry, Kind};
use crate::in_process::{InProcess, Request};
use crate::subjects::ENGINES;

/// Prints a table of engines and sizes, or the reason why it is skipped.
pub fn report(bench: &mut Bench, name: &str, folder: &Path, entries: &[Entry]) -> Outcome {
    let Some(program) = bench.options.evermap.clone() else { return Ok(()) };
    println!("### {name}, warm, unsynced, inside a running process\n");
    let Some(inside) = InProcess::find(&program) else {
        println!("**Skipped**: the command has no `evermap bench transfer`.\n");
        return Ok(());
    };
    let engines = ENGINES.into_iter().filter(|engine| bench.options.wants_subject(engine));
    let engines: Vec<&str> = engines.collect();
    let dense = entries.iter().filter(|entry| entry.kind != Kind::Sparse);
    let sizes_bytes: Vec<u64> = dense.map(|entry| entry.bytes).collect();
    if engines.is_empty() || sizes_bytes.is_empty() {
        return Ok(());
    }
    let rounds = bench.options.rounds;
    let request = Request { engines: &engines, sizes_bytes: &sizes_bytes, rounds, folder };
    let measured = inside.measure(bench, "files", request);
    let Some(cells) = skip_on_error("inside a process", measured) else { return Ok(()) };
    let mut head = vec!["wall, ms".to_string()];
    head.extend(sizes_bytes.iter().map(|bytes| size(*bytes)));
    let mut table = Table::new(&head);
    for engine in &engines {
        let mut row = vec![engine.to_string()];
        for bytes in &sizes_bytes {
            let mut found = cells.iter().filter(|cell| cell.engine == *engine);
            let wall = found.find(|cell| cell.size_bytes == *bytes).and_then(|cell| cell.wall_ms());
            row.push(wall.map_or("-".to_string(), |wall| wall.to_string()));
        }
        table.row(&row);
    }
    println!("{table}");
    Ok(())
}
