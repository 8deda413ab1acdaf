//! Scenarios to simulate for a set of targets, and the mapping of their results to targets.

use crate::axis::Axis;
use crate::error::Error;
use crate::error::at_most;
use crate::measure::Measure;
use crate::mode::Mode;
use crate::model::Summary;
use crate::parallel;
use crate::profile::Profile;
use crate::scenario::{Scenario, run_all};
use crate::spread::Spread;
use crate::targets::{Case, Target, Targets};
use crate::workload::{Counting, Workload};

/// Maximum number of scenarios of all targets, which bounds the run time.
const SCENARIOS_MAX: usize = 10_000;

/// All scenarios of a set of targets, and the part of each target.
pub(crate) struct Plan {
    pub(crate) scenarios: Vec<Scenario>,
    parts: Vec<Part>,
}

/// Scenarios of one target.
struct Part {
    measure: Measure,
    /// Index of the first scenario.
    from: usize,
    count: usize,
    /// Scenarios come in pairs: a case, and the case that it is compared with.
    is_compared: bool,
}

impl Plan {
    pub(crate) fn of(targets: &Targets, profile: &Profile) -> Result<Self, Error> {
        let mut plan = Self { scenarios: Vec::new(), parts: Vec::new() };
        for target in &targets.targets {
            let from = plan.scenarios.len();
            target_scenarios(target, profile, &mut plan.scenarios)?;
            let count = plan.scenarios.len() - from;
            let (measure, is_compared) = (target.measure, target.against.is_some());
            plan.parts.push(Part { measure, from, count, is_compared });
        }
        Ok(plan)
    }

    /// Computes the measure of each target from the summaries of all scenarios.
    pub(crate) fn values(&self, summaries: &[Summary]) -> Vec<f64> {
        let value = |part: &Part| {
            let mine = &summaries[part.from..part.from + part.count];
            let points: Vec<(&Summary, Option<&Summary>)> = match part.is_compared {
                true => mine.chunks(2).map(|two| (&two[0], two.get(1))).collect(),
                false => mine.iter().map(|one| (one, None)).collect(),
            };
            part.measure.of(&points)
        };
        self.parts.iter().map(value).collect()
    }

    /// Returns the mean of each measure over `runs` runs, with consecutive seeds from `seed`.
    pub(crate) fn means(
        &self,
        runs: usize,
        seed: u64,
        counting: Counting,
    ) -> Result<Vec<f64>, Error> {
        let run = |n: usize| self.run(seed.wrapping_add(n as u64), counting);
        let of_runs = parallel::each(runs, run).into_iter().collect::<Result<Vec<_>, Error>>()?;
        let mean = |target| Spread::of(of_runs.iter().map(|of_run| of_run[target]).collect()).mean;
        Ok((0..self.parts.len()).map(mean).collect())
    }

    fn run(&self, seed: u64, counting: Counting) -> Result<Vec<f64>, Error> {
        let workload = Workload::Drawn;
        let summaries = run_all(&self.scenarios, &workload, seed, counting, |run| run.summary)?;
        Ok(self.values(&summaries))
    }
}

/// Adds the scenarios of a target: for each point its case, and the case it is compared with.
fn target_scenarios(
    target: &Target,
    profile: &Profile,
    scenarios: &mut Vec<Scenario>,
) -> Result<(), Error> {
    let axis = target.over.as_deref().map(str::parse::<Axis>).transpose()?;
    let points: Vec<Option<f64>> = match &axis {
        Some(axis) => axis.values().iter().copied().map(Some).collect(),
        None => vec![None],
    };
    let count = scenarios.len() + points.len() * (1 + usize::from(target.against.is_some()));
    at_most("cases of targets", count as u64, SCENARIOS_MAX as u64, "take larger steps")?;
    for point in points {
        let mut at = profile.clone();
        apply(&target.at, &mut at)?;
        if let (Some(axis), Some(value)) = (&axis, point) {
            at.set(axis.parameter(), value)?;
        }
        scenarios.push(scenario(&target.at, at.clone(), &Case::default())?);
        if let Some(against) = &target.against {
            apply(against, &mut at)?;
            scenarios.push(scenario(against, at, &target.at)?);
        }
    }
    Ok(())
}

fn apply(case: &Case, profile: &mut Profile) -> Result<(), Error> {
    case.parameters.iter().try_for_each(|(key, &value)| profile.set(key, value))
}

fn scenario(case: &Case, profile: Profile, otherwise: &Case) -> Result<Scenario, Error> {
    let mode = match case.mode.as_ref().or(otherwise.mode.as_ref()) {
        Some(mode) => mode.parse::<Mode>()?,
        None => profile.mode(),
    };
    let device = case.device.as_ref().or(otherwise.device.as_ref());
    let device = device.map_or(profile.device(), String::as_str).to_string();
    Scenario::of(profile, mode, &device)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        profile = "bahn2019"
        [[target]]
        name = "a reduction"
        measure = "missed_reduction_percent"
        value = 90
        over = "capacity=40,80"
        at = { mode = "nonblocking", device = "pcram" }
        against = { mode = "blocking", device = "nand", "io.wait_percent" = 10 }
    "#;

    fn plan(text: &str) -> Result<Plan, Error> {
        Plan::of(&text.parse()?, &Profile::built_in("bahn2019").unwrap())
    }

    #[test]
    fn all_published_targets_can_be_simulated_with_their_profile() {
        let targets = Targets::bahn2019().unwrap();
        Plan::of(&targets, &Profile::built_in(&targets.profile).unwrap()).unwrap();
    }

    #[test]
    fn a_comparison_has_two_scenarios_per_point() {
        let plan = plan(TEXT).unwrap();
        let devices: Vec<&str> = plan.scenarios.iter().map(Scenario::device_name).collect();
        assert_eq!(devices, ["pcram", "nand", "pcram", "nand"]);
        let value = plan.means(1, 1, Counting::Exact).unwrap()[0];
        assert!(value > 80.0 && value <= 100.0, "{value}");
    }

    #[test]
    fn invalid_cases_are_refused_by_name() {
        for (what, instead, expected) in [
            ("\"io.wait_percent\"", "\"io.wait\"", "io.wait"),
            ("\"pcram\"", "\"tape\"", "tape"),
            ("\"nonblocking\"", "\"slow\"", "slow"),
            ("capacity=40,80", "capacity=40,180", "180"),
            ("capacity=40,80", "capacity=0..60:0.01", "larger steps"),
        ] {
            assert!(TEXT.contains(what), "{what}");
            let error = plan(&TEXT.replacen(what, instead, 1)).err().unwrap().to_string();
            assert!(error.contains(expected), "{instead}: {error}");
        }
    }
}
