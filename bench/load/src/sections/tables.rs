//! Tables that several sections print.

use common::samples::{Samples, figure};
use common::table::Table;
use common::units::{MIB, grouped};

use crate::compete::{Lot, Measured, Standings};
use crate::subjects::{AUTOMATIC, FINISH};

/// Not slower than the best by more than this.
pub(super) const SLOWER_MOST: f64 = 1.1;

/// A row for each subject, a column for each cell.
pub(super) fn by_subject(
    corner: &str,
    columns: &[String],
    all: &[Standings],
    cell: impl Fn(&Lot) -> String,
) -> Table {
    let mut head = vec![corner.to_string()];
    head.extend(columns.iter().cloned());
    let mut table = Table::new(&head);
    for subject in subjects(all) {
        let mut row = vec![subject.to_string()];
        let lots = all.iter().map(|standings| standings.lot(subject));
        row.extend(lots.map(|lot| lot.map_or("-".to_string(), &cell)));
        table.row(&row);
    }
    table
}

pub(super) fn subjects(all: &[Standings]) -> Vec<&str> {
    let first = all.first().into_iter().flat_map(|standings| &standings.lots);
    first.map(|lot| lot.name.as_str()).collect()
}

pub(super) fn finished(lot: &Lot) -> String {
    lot.finished_ms().to_string()
}

pub(super) fn first_page(lot: &Lot) -> String {
    lot.samples(|step| step.taken.first_page_s * 1e3).to_string()
}

/// What one cell cost everybody, besides time.
pub(super) fn costs(standings: &Standings) -> Table {
    let mut table = Table::new(&[
        "",
        "first page, ms",
        "finished, ms",
        "whole process, ms",
        "user, ms",
        "system, ms",
        "minor faults",
        "major faults",
        "private, MiB",
        "in huge pages",
        "mapped",
        "cached",
        "twice",
    ]);
    for lot in standings.lots.iter().filter(|lot| lot.steps.is_ok()) {
        let median = |of: fn(&Measured) -> f64| lot.samples(of).median();
        let mib = |of: fn(&Measured) -> u64| {
            let bytes = lot.samples(|step| of(step) as f64).median();
            if bytes < 0.5 * MIB as f64 { "0".to_string() } else { figure(bytes / MIB as f64) }
        };
        table.row(&[
            lot.name.clone(),
            figure(median(|step| step.taken.first_page_s * 1e3)),
            figure(median(Measured::finished_ms)),
            figure(median(|step| step.process.wall_ms())),
            figure(median(|step| step.taken.user_s * 1e3)),
            figure(median(Measured::system_ms)),
            grouped(median(|step| step.taken.minor_faults as f64)),
            grouped(median(|step| step.taken.major_faults as f64)),
            mib(|step| step.taken.private_bytes),
            mib(|step| step.taken.huge_bytes),
            mib(|step| step.taken.mapped_bytes),
            mib(|step| step.cached_bytes),
            mib(|step| step.duplicate_bytes),
        ]);
    }
    table
}

/// Why some came to nothing, each reason once.
pub(super) fn failures(all: &[Standings]) {
    let mut said = Vec::new();
    for lot in all.iter().flat_map(|standings| &standings.lots) {
        if let Err(failure) = &lot.steps {
            let line = format!("- `{}`: {}", lot.name, reason(failure));
            if !said.contains(&line) {
                println!("{line}");
                said.push(line);
            }
        }
    }
    if !said.is_empty() {
        println!();
    }
}

/// Without the name of the program, which is this one or Python.
fn reason(failure: &str) -> &str {
    let line = failure.lines().next().unwrap_or_default();
    let said = line.split_once("evermap-load-bench: ").or_else(|| line.split_once("refused: "));
    match said {
        Some((_, said)) if !said.is_empty() => {
            said.rsplit("evermap-load-bench: ").next().unwrap_or(said)
        }
        _ => line,
    }
}

/// The time of the policy in parts of that of the best, round by round.
pub(super) fn against_best(standings: &Standings, policy: &str) -> Option<Samples> {
    let best = standings.best()?.name.clone();
    standings.ratios(policy, &best, Measured::finished_ms)
}

/// Both policies beside the best, cell by cell.
pub(super) fn verdicts(all: &[Standings]) -> Table {
    let mut table = Table::new(&[
        "",
        "best",
        "ms",
        "automatic",
        "ms",
        "/ best",
        "within 10 %",
        "automatic-finish",
        "ms",
        "/ best",
        "within 10 %",
    ]);
    for standings in all {
        let Some(best) = standings.best() else { continue };
        let mut row = vec![
            standings.cell.name.clone(),
            best.name.clone(),
            figure(best.finished_ms().median()),
        ];
        for policy in [AUTOMATIC, FINISH] {
            match (standings.lot(policy), against_best(standings, policy)) {
                (Some(lot), Some(ratios)) => row.extend([
                    lot.methods(),
                    figure(lot.finished_ms().median()),
                    ratios.to_string(),
                    if is_within(&ratios) { "yes" } else { "**no**" }.to_string(),
                ]),
                _ => row.extend(["-"; 4].map(str::to_string)),
            }
        }
        table.row(&row);
    }
    table
}

pub(super) fn is_within(ratios: &Samples) -> bool {
    ratios.median() <= SLOWER_MOST
}

/// In how many cells a policy is as good as the best, and of how many: nothing if it was not measured.
pub(super) fn within(all: &[Standings], policy: &str) -> Option<(usize, usize)> {
    let ratios: Vec<Samples> =
        all.iter().filter_map(|standings| against_best(standings, policy)).collect();
    let met = ratios.iter().filter(|ratios| is_within(ratios)).count();
    (!ratios.is_empty()).then_some((met, ratios.len()))
}

/// One line of that.
pub(super) fn say_within(all: &[Standings]) {
    for policy in [AUTOMATIC, FINISH] {
        if let Some((met, cells)) = within(all, policy) {
            println!("- `{policy}` is within 10 % of the best in {met} of {cells} cells");
        }
    }
    println!();
}

/// What a state is called.
pub(super) fn state(is_cold: bool) -> &'static str {
    if is_cold { "cold" } else { "warm" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_what_the_program_said_or_how_it_ended() {
        let ended =
            "/target/release/evermap-load-bench: exit status: 1: evermap-load-bench: cannot";
        assert_eq!(reason(ended), "cannot");
        assert_eq!(reason("/bin/python: exit status: 1: refused: in order"), "in order");
        let killed = "/target/release/evermap-load-bench: signal: 9 (SIGKILL): ";
        assert_eq!(reason(killed), "signal: 9 (SIGKILL): ");
    }

    #[test]
    fn ten_percent_more_is_still_within() {
        let samples = |value| {
            let mut samples = Samples::new();
            samples.push(value);
            samples
        };
        assert!(is_within(&samples(1.1)) && !is_within(&samples(1.11)));
        assert!(!is_within(&Samples::new()));
    }
}
