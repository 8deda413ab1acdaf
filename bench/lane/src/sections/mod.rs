//! Sections of the benchmark; each answers one question.

pub mod cost;
pub mod decoder;
pub mod hogs;
pub mod ladder;
pub mod latency;

use evermap_lane::bench::{Cell, Results, Turn};
use harness::samples::figure;
use serde::Serialize;

use crate::bench::Bench;

/// Turn as a nested object, because its round and subject have the names that the line uses.
#[derive(Serialize)]
struct Figures<'a> {
    turn: &'a Turn,
}

/// Writes every turn into the raw figures.
fn write_turns(
    bench: &mut Bench,
    section: &str,
    cell: &str,
    results: &Results,
) -> harness::Outcome {
    for turn in &results.turns {
        let name = turn.subject.name();
        let origin = harness::raw::Origin { section, cell, subject: &name, round: turn.round + 1 };
        bench.raw.add(origin, Figures { turn })?;
    }
    Ok(())
}

/// Prints the notes on settings that were not applied, below a table.
fn say_notes(results: &Results) {
    for cell in &results.cells {
        for note in &cell.not_applied {
            println!("- {} at {}: not {}: {}", cell.name, cell.preset.fps, note.what, note.why);
        }
        if cell.damaged > 0 {
            println!(
                "- **{} at {}: {} frames were damaged**",
                cell.name, cell.preset.fps, cell.damaged
            );
        }
    }
}

/// Formats `missed (of periods)`.
fn missed(cell: &Cell) -> String {
    format!("{} % ({} of {})", figure(cell.missed_percent), cell.missed, cell.periods)
}
