//! Sections of the benchmark, one file each.

pub mod calls;
pub mod classifier;
pub mod counts;
pub mod dna;
pub mod hash_map;
pub mod instances;
pub mod snappy;
pub mod spell_check;

use crate::Outcome;
use crate::compete::{Results, times};
use crate::table::Table;

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

/// Formats a count in groups of three digits.
fn grouped(count: f64) -> String {
    let digits = format!("{:.0}", count.abs());
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if count < 0.0 { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_from_the_right() {
        let texts = [0.0, 999.0, 1000.0, 1234567.0, -65536.0].map(grouped);
        assert_eq!(texts, ["0", "999", "1,000", "1,234,567", "-65,536"]);
    }
}
