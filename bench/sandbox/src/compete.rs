//! Runs contestants in turns: each performs its steps once in every round, and all must reach the
//! same results.

use std::collections::BTreeMap;

use crate::bench::{Bench, Machine, Run, Shelf};
use harness::Outcome;
use harness::raw::Origin;
use harness::samples::{Samples, figure};

/// Step to run, and its name in tables.
#[derive(Clone, Debug)]
pub struct Step {
    pub name: &'static str,
    /// Workload, variant, step and options.
    pub line: String,
}

/// One way to do the work that all contestants do.
#[derive(Clone, Debug)]
pub struct Contestant {
    pub name: &'static str,
    pub machine: Machine,
    /// Runs once before the rounds, in a store that all rounds share.
    pub prepare: Vec<String>,
    /// Runs in every round, in order and in one store: a new one, if nothing was prepared.
    pub steps: Vec<Step>,
}

impl Contestant {
    pub fn new(name: &'static str, machine: Machine) -> Contestant {
        Contestant { name, machine, prepare: Vec::new(), steps: Vec::new() }
    }

    pub fn prepare(mut self, line: impl Into<String>) -> Contestant {
        self.prepare.push(line.into());
        self
    }

    pub fn step(mut self, name: &'static str, line: impl Into<String>) -> Contestant {
        self.steps.push(Step { name, line: line.into() });
        self
    }
}

/// Runs of all rounds that count.
#[derive(Debug, Default)]
pub struct Results {
    runs: BTreeMap<(&'static str, &'static str), Vec<Run>>,
}

/// Runs all contestants.
pub fn compete(bench: &mut Bench, section: &str, contestants: &[Contestant]) -> Outcome<Results> {
    let kept = contestants.iter().map(|contestant| prepare(bench, contestant));
    let kept: Vec<Option<Shelf>> = kept.collect::<Outcome<_>>()?;
    let (mut results, mut agreement) = (Results::default(), Agreement::default());
    for round in 0..=bench.options.rounds {
        for (contestant, kept) in contestants.iter().zip(&kept) {
            let new = if kept.is_none() { Some(bench.own.shelf()?) } else { None };
            let Some(shelf) = kept.as_ref().or(new.as_ref()) else { continue };
            for step in &contestant.steps {
                let run = bench.own.run(contestant.machine, &step.line, shelf)?;
                agreement.check(contestant.name, step.name, &run)?;
                let origin = Origin { section, cell: step.name, subject: contestant.name, round };
                bench.raw.add(origin, run.all())?;
                if round > 0 {
                    results.runs.entry((contestant.name, step.name)).or_default().push(run);
                }
            }
        }
        eprintln!("{section}: round {round} of {}", bench.options.rounds);
    }
    for contestant in contestants {
        for step in &contestant.steps {
            bench.own.counts.add(
                section,
                contestant.name,
                step.name,
                results.of(contestant.name, step.name)?,
            );
        }
    }
    Ok(results)
}

fn prepare(bench: &Bench, contestant: &Contestant) -> Outcome<Option<Shelf>> {
    if contestant.prepare.is_empty() {
        return Ok(None);
    }
    let shelf = bench.own.shelf()?;
    for line in &contestant.prepare {
        bench.own.run(contestant.machine, line, &shelf)?;
    }
    Ok(Some(shelf))
}

/// Checksums of the first run of each step, which all later runs must reach.
#[derive(Debug, Default)]
struct Agreement {
    first: BTreeMap<(&'static str, String), (&'static str, String)>,
}

impl Agreement {
    fn check(&mut self, contestant: &'static str, step: &'static str, run: &Run) -> Outcome {
        for (what, checksum) in run.figures.checksums() {
            let found = (contestant, checksum.to_string());
            let first = self.first.entry((step, what.to_string())).or_insert(found);
            if first.1 != checksum {
                return Err(format!(
                    "{step}: different results: `{what}` of {contestant} is {checksum}, and that of {} was {}",
                    first.0, first.1
                )
                .into());
            }
        }
        Ok(())
    }
}

impl Results {
    /// Returns the runs of a contestant's step.
    pub fn of(&self, contestant: &str, step: &str) -> Outcome<&[Run]> {
        let found = self.runs.iter().find(|(of, _)| **of == (contestant, step));
        let (_, runs) = found.ok_or_else(|| format!("{contestant} has no step {step}"))?;
        Ok(runs)
    }

    /// Returns the sum of these figures for each round.
    pub fn sums(&self, contestant: &str, step: &str, whats: &[&str]) -> Outcome<Samples> {
        let sum = |run: &Run| whats.iter().map(|what| run.figures.number(what)).sum();
        self.of(contestant, step)?.iter().map(sum).collect()
    }

    /// Returns `one` divided by `other` for each round.
    pub fn ratios(&self, one: &str, other: &str, step: &str, whats: &[&str]) -> Outcome<Samples> {
        Ok(self.sums(one, step, whats)?.ratios(&self.sums(other, step, whats)?))
    }
}

/// Formats a ratio that has no goal.
pub fn times(ratios: &Samples) -> String {
    format!("{} x", figure(ratios.median()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::cost::Cost;
    use crate::figures::Figures;

    fn run(time: f64, checksum: &str) -> Run {
        let output =
            format!("w.v.s.time {time} ms\nw.v.s.durable 1 ms\nw.v.s.checksum {checksum} xxh3\n");
        let figures = Figures::read(&output).unwrap();
        Run { figures, cost: Cost::default(), account: None }
    }

    fn results() -> Results {
        let runs = BTreeMap::from([
            (("files", "run"), vec![run(10.0, "a"), run(30.0, "a")]),
            (("heap", "run"), vec![run(5.0, "a"), run(10.0, "a")]),
        ]);
        Results { runs }
    }

    #[test]
    fn ratios_of_contestants_compare_the_same_step() {
        let ratios = results().ratios("files", "heap", "run", &["time"]).unwrap();
        assert_eq!((ratios.min(), ratios.max(), ratios.count()), (2.0, 3.0, 2));
        assert_eq!(times(&ratios), "2.50 x");
    }

    #[test]
    fn parts_are_added_in_each_round() {
        let sums = results().sums("files", "run", &["time", "durable"]).unwrap();
        assert_eq!((sums.min(), sums.max()), (11.0, 31.0));
        let error = results().sums("files", "walk", &["time"]).unwrap_err().to_string();
        assert!(error.contains("files has no step walk"), "{error}");
    }

    #[test]
    fn a_different_result_ends_the_run_and_names_both() {
        let mut agreement = Agreement::default();
        agreement.check("files", "run", &run(1.0, "aa")).unwrap();
        agreement.check("heap", "run", &run(2.0, "aa")).unwrap();
        // Each step has its own result.
        agreement.check("files", "other", &run(1.0, "bb")).unwrap();
        let error = agreement.check("heap", "run", &run(2.0, "bb")).unwrap_err().to_string();
        assert!(error.contains("heap is bb") && error.contains("files was aa"), "{error}");
    }
}
