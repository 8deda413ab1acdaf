//! Fits free parameters to targets, and reports the chosen values and the remaining differences.
//!
//! The search is a seeded random walk. Each step changes some of the parameters by a decreasing
//! width, and is accepted if the targets are met better. The number of steps is fixed, and the same
//! seed gives the same result. The walk uses expected misses of uniform references. The result is
//! evaluated with exact caches.

use serde::Serialize;

use crate::error::Error;
use crate::parameters::specification;
use crate::plan::Plan;
use crate::profile::{Parameter, Profile};
use crate::random::{Purpose, Random};
use crate::targets::{Role, Targets};
use crate::workload::Counting;

const STEPS_MAX: u32 = 1_000_000;
/// Number of runs to evaluate a step. Their mean has about a sixth of the deviation of one run.
const RUNS: usize = 32;
/// Step width as a share of a parameter's range, in the first and the last step.
const WIDTH_FIRST: f64 = 0.25;
const WIDTH_LAST: f64 = 0.004;
/// Share of steps that jump anywhere in the ranges.
const JUMP_SHARE: f64 = 0.125;

/// Search for parameters.
#[derive(Clone, Debug)]
pub struct Fit {
    profile: Profile,
    targets: Targets,
}

/// Result of a search.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Fitted {
    /// Number of steps.
    pub steps: u32,
    /// Seed of the search.
    pub seed: u64,
    /// Number of accepted steps.
    pub kept: u32,
    /// Score of the initial profile: sum over the fitted targets of the squared difference in
    /// tolerances.
    pub score_before: f64,
    /// Score of the result; never larger.
    pub score: f64,
    /// The fitted parameters.
    pub parameters: Vec<FittedParameter>,
    /// Value of each target.
    pub residuals: Vec<Residual>,
    /// Profile with the fitted parameters.
    #[serde(skip)]
    pub profile: Profile,
}

/// Fitted parameter.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FittedParameter {
    /// Name of the parameter.
    pub name: String,
    /// Initial value.
    pub before: f64,
    /// Fitted value.
    pub value: f64,
    /// Minimum of the allowed range.
    pub from: f64,
    /// Maximum of the allowed range.
    pub to: f64,
}

/// Value of a target before and after the fit.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Residual {
    /// Name of the target.
    pub name: String,
    /// Role of the target.
    pub role: Role,
    /// Target value.
    pub target: Option<f64>,
    /// Value with the initial profile.
    pub before: f64,
    /// Value with the fitted profile.
    pub value: f64,
}

impl Fit {
    /// Creates a search for `targets` that starts at `profile`.
    ///
    /// # Errors
    ///
    /// The profile cannot have one of the targets or free parameters, no parameter is free, or no
    /// target is to be fitted.
    pub fn new(profile: Profile, targets: Targets) -> Result<Self, Error> {
        Plan::of(&targets, &profile)?;
        targets.check_free(&profile)?;
        let name = targets.profile.clone();
        if targets.free.is_empty() {
            let why = "no parameter is free; add [[free]] entries".into();
            return Err(Error::Target { name, why });
        }
        if !targets.targets.iter().any(|target| target.role == Role::Fitted) {
            let why = "no target is to be fitted; give one a value and the role `fitted`".into();
            return Err(Error::Target { name, why });
        }
        Ok(Self { profile, targets })
    }

    /// Runs the search. Each step takes some ten milliseconds on all cores.
    ///
    /// # Errors
    ///
    /// `steps` is more than a million.
    pub fn run(&self, steps: u32, seed: u64) -> Result<Fitted, Error> {
        if steps > STEPS_MAX {
            let remedy = "a few thousand are enough for a dozen parameters";
            let (count, most) = (u64::from(steps), u64::from(STEPS_MAX));
            return Err(Error::LimitExceeded { what: "steps", count, most, remedy });
        }
        let before: Vec<f64> =
            self.targets.free.iter().map(|free| self.start(&free.parameter)).collect();
        let (mut values, kept) = self.walk(&before, steps, seed)?;
        let evaluate = |profile: &Profile| {
            Plan::of(&self.targets, profile)?.means(RUNS, seed, Counting::Exact)
        };
        let of_before = evaluate(&self.profile)?;
        let score_before = self.targets.score(&of_before);
        let mut profile = self.with(&values)?;
        let mut of_values = evaluate(&profile)?;
        if self.targets.score(&of_values) > score_before {
            // The walk improved the expected score, but the exact score got worse.
            (values, of_values, profile) =
                (before.clone(), of_before.clone(), self.profile.clone());
        }
        let free = self.targets.free.iter().zip(before.iter().zip(&values));
        let parameters = free.map(|(free, (&before, &value))| FittedParameter {
            name: free.parameter.clone(),
            before,
            value,
            from: free.from,
            to: free.to,
        });
        let targets = self.targets.targets.iter().zip(of_before.iter().zip(&of_values));
        let residuals = targets.map(|(target, (&before, &value))| Residual {
            name: target.name.clone(),
            role: target.role,
            target: target.value,
            before,
            value,
        });
        let about = format!("{}; fitted in {steps} steps with seed {seed}", self.profile.about());
        Ok(Fitted {
            steps,
            seed,
            kept,
            score_before,
            score: self.targets.score(&of_values),
            parameters: parameters.collect(),
            residuals: residuals.collect(),
            profile: profile.renamed(format!("{}-fitted", self.profile.name()), about),
        })
    }

    fn start(&self, parameter: &str) -> f64 {
        self.profile.get(parameter).map_or(0.0, |parameter| parameter.value)
    }

    /// Starts at the given values. Returns the best values and the number of accepted steps.
    fn walk(&self, from: &[f64], steps: u32, seed: u64) -> Result<(Vec<f64>, u32), Error> {
        let mut random = Random::of(seed, Purpose::Search);
        let mut best = from.to_vec();
        // Skip targets that are only reported: they cost time and do not affect the score.
        let targets = self.targets.fitted();
        let evaluate = |profile: &Profile| {
            let means = Plan::of(&targets, profile)?.means(RUNS, seed, Counting::Expected)?;
            Ok::<f64, Error>(targets.score(&means))
        };
        let mut best_score = evaluate(&self.profile)?;
        let narrowing = libm::pow(WIDTH_LAST / WIDTH_FIRST, 1.0 / f64::from(steps.max(1)));
        let (mut width, mut kept) = (WIDTH_FIRST, 0);
        for _ in 0..steps {
            let tried = self.step(&best, width, &mut random)?;
            width *= narrowing;
            // Skip a profile whose device would collect garbage all the time.
            let Ok(profile) = self.with(&tried) else { continue };
            let Ok(score) = evaluate(&profile) else { continue };
            if score < best_score {
                (best, best_score, kept) = (tried, score, kept + 1);
            }
        }
        Ok((best, kept))
    }

    fn step(&self, from: &[f64], width: f64, random: &mut Random) -> Result<Vec<f64>, Error> {
        let always = random.below(from.len() as u32) as usize;
        // Jump sometimes, because all steps nearby may have the same score.
        let is_jump = random.unit() < JUMP_SHARE;
        let mut values = from.to_vec();
        for (index, (value, free)) in values.iter_mut().zip(&self.targets.free).enumerate() {
            // Always draw, so that a skipped parameter does not change the draws of the others.
            let (is_changed, by, place) = (random.unit() < 0.4, random.normal(), random.unit());
            if !is_changed && index != always {
                continue;
            }
            let range = free.to - free.from;
            let near = (*value + by * width * range).clamp(free.from, free.to);
            *value = if is_jump { free.from + place * range } else { near };
            if specification(&free.parameter)?.is_whole {
                *value = value.round();
            }
        }
        Ok(values)
    }

    fn with(&self, values: &[f64]) -> Result<Profile, Error> {
        let mut profile = self.profile.clone();
        for (free, &value) in self.targets.free.iter().zip(values) {
            let source = "fitted to the targets".to_string();
            profile.put(&free.parameter, Parameter { value, source, fitted: true })?;
        }
        Ok(profile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        profile = "bahn2019"
        [[free]]
        parameter = "frames.decode_ms_mean"
        from = 1
        to = 40
        [[free]]
        parameter = "io.request_pages"
        from = 1
        to = 64
        [[target]]
        name = "misses"
        measure = "missed_percent"
        value = 30
        at = { mode = "blocking", device = "nand", "frames.count" = 60 }
        [[target]]
        name = "reported only"
        measure = "late_change_percent"
        role = "follows"
    "#;

    fn fit(text: &str) -> Result<Fit, Error> {
        Fit::new(Profile::built_in("bahn2019").unwrap(), text.parse()?)
    }

    #[test]
    fn a_fit_improves_the_score_within_the_ranges() {
        let fitted = fit(TEXT).unwrap().run(60, 1).unwrap();
        assert!(fitted.score_before > 50.0, "{fitted:?}");
        assert!(fitted.score < fitted.score_before / 10.0, "{fitted:?}");
        assert!(fitted.kept > 0);
        for parameter in &fitted.parameters {
            assert!(parameter.value >= parameter.from && parameter.value <= parameter.to);
        }
        assert_eq!(fitted.parameters[1].value.fract(), 0.0, "pages are whole numbers");
        assert!((fitted.residuals[0].value - 30.0).abs() < 3.0);
        // The fitted profile is valid, and marks its fitted values.
        let again: Profile = fitted.profile.to_toml().parse().unwrap();
        let decode = again.get("decode").unwrap();
        assert!(decode.fitted && decode.value == fitted.parameters[0].value);
    }

    #[test]
    fn the_walk_leaves_a_plateau() {
        // No deadline is missed until decoding takes three times as long.
        let text = TEXT.replace(
            "\"frames.count\" = 60",
            "\"frames.count\" = 20, \"frames.references_mean\" = 500",
        );
        for seed in 1..=3 {
            let fitted = fit(&text).unwrap().run(80, seed).unwrap();
            assert!(fitted.score_before > 800.0 && fitted.score < 100.0, "{seed}: {fitted:?}");
        }
    }

    #[test]
    fn a_seed_gives_one_result_and_no_steps_change_nothing() {
        let fit = fit(TEXT).unwrap();
        assert_eq!(fit.run(15, 4).unwrap(), fit.run(15, 4).unwrap());
        let none = fit.run(0, 4).unwrap();
        assert_eq!((none.kept, none.score), (0, none.score_before));
        assert_eq!(none.parameters[0].value, none.parameters[0].before);
    }

    #[test]
    fn a_worse_result_is_discarded() {
        for seed in 0..4 {
            let fitted = fit(TEXT).unwrap().run(3, seed).unwrap();
            assert!(fitted.score <= fitted.score_before, "{seed}");
        }
    }

    #[test]
    fn a_fit_without_free_parameters_or_targets_or_with_too_many_steps_is_refused() {
        let nothing_free = TEXT.replace("[[free]]", "[[unfree]]");
        assert!(nothing_free.parse::<Targets>().is_err());
        let (_, targets) = TEXT.split_once("[[target]]").unwrap();
        let none = format!("profile = \"bahn2019\"\n[[target]]{targets}");
        assert!(fit(&none).unwrap_err().to_string().contains("free"));
        let reported = TEXT.replace("value = 30", "role = \"follows\"");
        assert!(fit(&reported).unwrap_err().to_string().contains("fitted"));
        assert!(fit(TEXT).unwrap().run(u32::MAX, 1).is_err());
    }
}
