//! Runs the subjects in turns. Each does the same work once in every round, so that noise affects
//! all of them alike. Round 0 does not count.

use serde::Serialize;

use crate::Outcome;
use crate::bench::Bench;
use crate::process::Failure;
use crate::raw::Origin;
use crate::samples::Samples;

/// Result of one subject. `M` has the measurements of one step, `A` what else is known of the
/// subject.
#[derive(Clone, Debug)]
pub struct SubjectResult<M, A = ()> {
    pub name: String,
    /// Measurements of the rounds that count, or the failure.
    pub steps: Result<Vec<M>, Failure>,
    pub about: A,
}

impl<M, A> SubjectResult<M, A> {
    pub fn new(name: &str, about: A) -> SubjectResult<M, A> {
        SubjectResult { name: name.to_string(), steps: Ok(Vec::new()), about }
    }

    pub fn samples(&self, of: impl Fn(&M) -> f64) -> Samples {
        self.steps.iter().flatten().map(of).collect()
    }
}

impl<M: Serialize, A> SubjectResult<M, A> {
    /// Notes the end of one step. A subject that failed takes no more turns.
    pub fn note<Own>(
        &mut self,
        bench: &mut Bench<Own>,
        (section, cell, round): (&str, &str, usize),
        step: Result<M, Failure>,
    ) -> Outcome {
        match (step, &mut self.steps) {
            (Ok(measured), steps) => {
                let origin = Origin { section, cell, subject: &self.name, round };
                bench.raw.add(origin, &measured)?;
                if let (true, Ok(steps)) = (round > 0, steps) {
                    steps.push(measured);
                }
            }
            (Err(failure), steps) => {
                eprintln!("{cell}: {}: {failure}", self.name);
                *steps = Err(failure);
            }
        }
        Ok(())
    }
}

/// Results of one cell, which describes the work that all subjects did.
#[derive(Clone, Debug)]
pub struct Standings<C, M, A = ()> {
    pub cell: C,
    pub results: Vec<SubjectResult<M, A>>,
}

impl<C, M, A> Standings<C, M, A> {
    /// Returns the result of this subject, unless it failed.
    pub fn result(&self, name: &str) -> Option<&SubjectResult<M, A>> {
        self.results.iter().find(|result| result.name == name && result.steps.is_ok())
    }

    /// Returns the subject with the least median, of those that take part and did not fail.
    pub fn least(
        &self,
        takes_part: impl Fn(&SubjectResult<M, A>) -> bool,
        of: impl Fn(&M) -> f64,
    ) -> Option<&SubjectResult<M, A>> {
        let measured = self.results.iter().filter(|result| result.steps.is_ok());
        let medians = measured
            .filter(|result| takes_part(result))
            .map(|result| (result, result.samples(&of).median()));
        medians.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(result, _)| result)
    }

    /// Returns `one` divided by `other`, round by round.
    pub fn ratios(&self, one: &str, other: &str, of: impl Fn(&M) -> f64) -> Option<Samples> {
        Some(self.result(one)?.samples(&of).ratios(&self.result(other)?.samples(&of)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn result(name: &str, steps: &[f64]) -> SubjectResult<f64> {
        SubjectResult { steps: Ok(steps.to_vec()), ..SubjectResult::new(name, ()) }
    }

    fn standings() -> Standings<(), f64> {
        let broken = SubjectResult { steps: Err("no".to_string()), ..result("pv", &[]) };
        let results =
            vec![result("evermap", &[1.0, 2.0, 4.0]), broken, result("cp", &[2.0, 8.0, 4.0])];
        Standings { cell: (), results }
    }

    #[test]
    fn a_ratio_compares_figures_of_the_same_round() {
        let ratios = standings().ratios("cp", "evermap", |step| *step).unwrap();
        assert_eq!((ratios.median(), ratios.min(), ratios.max()), (2.0, 1.0, 4.0));
        assert!(standings().ratios("cp", "pv", |_| 1.0).is_none(), "it failed");
        assert!(standings().ratios("cp", "dd", |_| 1.0).is_none());
    }

    #[test]
    fn the_least_takes_part_and_did_not_fail() {
        let all = standings();
        assert_eq!(all.least(|_| true, |step| *step).unwrap().name, "evermap");
        assert_eq!(all.least(|result| result.name != "evermap", |step| *step).unwrap().name, "cp");
        assert!(all.least(|_| false, |step| *step).is_none());
    }
}
