//! Prints costs of the other sections' runs that noise of the clock does not change: medians of
//! counts.
//!
//! Counts of guests cover their first instruction to their last, counts of native programs the
//! whole process with its start. Both include the checks after the measurement. Written bytes were
//! passed to `write` and similar calls; dirtied bytes are pages that must go to the disk.

use crate::bench::{Bench, Run};
use crate::cost::Cost;
use crate::guest::Account;
use harness::Outcome;
use harness::samples::Samples;
use harness::table::Table;
use harness::units::grouped;

/// One line for each step of each contestant.
#[derive(Debug, Default)]
pub struct Counts {
    lines: Vec<[String; 10]>,
}

impl Counts {
    /// Adds the runs of a step.
    pub fn add(&mut self, section: &str, contestant: &str, step: &str, runs: &[Run]) {
        let of_cost = |count: fn(&Cost) -> u64| {
            runs.iter().map(|run| count(&run.cost) as f64).collect::<Samples>().median()
        };
        let accounts: Vec<&Account> = runs.iter().filter_map(|run| run.account.as_ref()).collect();
        let of_guest = |count: fn(&Account) -> u64| match accounts.is_empty() {
            true => String::new(),
            false => {
                let counts = accounts.iter().map(|account| count(account) as f64);
                grouped(counts.collect::<Samples>().median())
            }
        };
        self.lines.push([
            section.to_string(),
            contestant.to_string(),
            step.to_string(),
            of_guest(|account| account.host_calls),
            of_guest(|account| account.crossings),
            of_guest(|account| account.map_calls),
            of_guest(|account| account.commits),
            grouped(of_cost(|cost| cost.minor_faults)),
            grouped(of_cost(|cost| cost.written_bytes) / 1e3),
            grouped(of_cost(|cost| cost.dirtied_bytes) / 1e3),
        ]);
    }

    fn table(&self) -> Table {
        let mut table = Table::new(&[
            "section",
            "contestant",
            "step",
            "host calls",
            "crossings",
            "calls of `map`",
            "commits",
            "minor faults",
            "written, kB",
            "dirtied, kB",
        ]);
        self.lines.iter().for_each(|line| table.row(line));
        table
    }
}

pub fn report(bench: &mut Bench) -> Outcome {
    print!("{}", bench.own.counts.table());
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::figures::Figures;

    #[test]
    fn counts_are_medians_and_native_programs_have_no_host_calls() {
        let run = |host_calls, minor_faults, guest| Run {
            figures: Figures::default(),
            cost: Cost { minor_faults, written_bytes: 2_000_000, ..Cost::default() },
            account: Some(Account { host_calls, ..Account::default() }).filter(|_| guest),
        };
        let mut counts = Counts::default();
        let guests = [run(1000, 1, true), run(3000, 9, true), run(2000, 5, true)];
        counts.add("dna", "guest", "fasta", &guests);
        counts.add("dna", "native", "fasta", &[run(7, 1234, false)]);
        let text = counts.table().to_string();
        assert!(text.contains("| dna | guest | fasta | 2,000 | 0 | 0 | 0 | 5 | 2,000 |"), "{text}");
        assert!(text.contains("| dna | native | fasta |  |  |  |  | 1,234 | 2,000 |"), "{text}");
    }
}
