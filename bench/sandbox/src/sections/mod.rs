//! Sections of the benchmark, one file each.

pub mod calls;
pub mod classifier;
pub mod counts;
pub mod dna;
pub mod hash_map;
pub mod instances;
pub mod snappy;
pub mod spell_check;

use crate::compete::{Results, times};
use harness::Outcome;
use harness::table::Table;

/// Table of all contestants: parts of their time, and the ratio to the time of `best`.
fn standings(
    results: &Results,
    step: &str,
    names: &[&str],
    columns: &[(&str, &[&str])],
    best: &str,
) -> Outcome<Table> {
    let titles = columns.iter().map(|(title, _)| title.to_string());
    let ratio = format!("by {best}");
    let head: Vec<String> =
        std::iter::once("ms".to_string()).chain(titles).chain([ratio.clone()]).collect();
    let mut table = Table::new(&head);
    let whats = columns.first().map_or(&[][..], |(_, whats)| whats);
    for name in names {
        let mut row = vec![name.to_string()];
        for (_, whats) in columns {
            row.push(results.sums(name, step, whats)?.to_string());
        }
        row.push(times(&results.ratios(name, best, step, whats)?));
        table.row(&row);
    }
    Ok(table)
}
