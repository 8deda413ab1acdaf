//! Tables that several sections print.

use harness::samples::{Samples, figure};
use harness::table::Table;
use harness::units::{MIB, grouped};

use crate::compete::{Measured, Standings, SubjectResult, best, finished_ms, methods};
use crate::subjects::{AUTOMATIC, FINISH};

/// Highest accepted ratio to the best subject.
pub(super) const SLOWER_MOST: f64 = 1.1;

/// Table with a row for each subject and a column for each cell.
pub(super) fn by_subject(
    corner: &str,
    columns: &[String],
    all: &[Standings],
    cell: impl Fn(&SubjectResult) -> String,
) -> Table {
    let mut head = vec![corner.to_string()];
    head.extend(columns.iter().cloned());
    let mut table = Table::new(&head);
    for subject in subjects(all) {
        let mut row = vec![subject.to_string()];
        let results = all.iter().map(|standings| standings.result(subject));
        row.extend(results.map(|result| result.map_or("-".to_string(), &cell)));
        table.row(&row);
    }
    table
}

pub(super) fn subjects(all: &[Standings]) -> Vec<&str> {
    let first = all.first().into_iter().flat_map(|standings| &standings.results);
    first.map(|result| result.name.as_str()).collect()
}

pub(super) fn finished(result: &SubjectResult) -> String {
    finished_ms(result).to_string()
}

pub(super) fn first_page(result: &SubjectResult) -> String {
    result.samples(|step| step.taken.first_page_s * 1e3).to_string()
}

/// Table of the costs of one cell, a row for each subject.
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
    for result in standings.results.iter().filter(|result| result.steps.is_ok()) {
        let median = |of: fn(&Measured) -> f64| result.samples(of).median();
        let mib = |of: fn(&Measured) -> u64| {
            let bytes = result.samples(|step| of(step) as f64).median();
            if bytes < 0.5 * MIB as f64 { "0".to_string() } else { figure(bytes / MIB as f64) }
        };
        table.row(&[
            result.name.clone(),
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

/// Prints the reason of each failure once.
pub(super) fn failures(all: &[Standings]) {
    let mut said = Vec::new();
    for result in all.iter().flat_map(|standings| &standings.results) {
        if let Err(failure) = &result.steps {
            let line = format!("- `{}`: {}", result.name, reason(failure));
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

/// Returns the failure without the name of the program, which is this one or Python.
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

/// Returns the policy's time divided by the best subject's time, round by round.
pub(super) fn against_best(standings: &Standings, policy: &str) -> Option<Samples> {
    let best = best(standings)?.name.clone();
    standings.ratios(policy, &best, Measured::finished_ms)
}

/// Table of both policies and the best subject, cell by cell.
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
        let Some(best) = best(standings) else { continue };
        let mut row = vec![
            standings.cell.name.clone(),
            best.name.clone(),
            figure(finished_ms(best).median()),
        ];
        for policy in [AUTOMATIC, FINISH] {
            match (standings.result(policy), against_best(standings, policy)) {
                (Some(result), Some(ratios)) => row.extend([
                    methods(result),
                    figure(finished_ms(result).median()),
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

/// Returns in how many cells a policy is within the limit, and the number of cells. `None` if it
/// was not measured.
pub(super) fn within(all: &[Standings], policy: &str) -> Option<(usize, usize)> {
    let ratios: Vec<Samples> =
        all.iter().filter_map(|standings| against_best(standings, policy)).collect();
    let met = ratios.iter().filter(|ratios| is_within(ratios)).count();
    (!ratios.is_empty()).then_some((met, ratios.len()))
}

/// Prints one line for each policy.
pub(super) fn say_within(all: &[Standings]) {
    for policy in [AUTOMATIC, FINISH] {
        if let Some((met, cells)) = within(all, policy) {
            println!("- `{policy}` is within 10 % of the best in {met} of {cells} cells");
        }
    }
    println!();
}

/// Name of a state.
pub(super) fn state(is_cold: bool) -> &'static str {
    if is_cold { "cold" } else { "warm" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_the_programs_error_or_its_exit_status() {
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
