//! Searches free parameters for targets: a fit says what was chosen, for what, and what is left.
//!
//! A seeded walk: each step changes some of the parameters, less and less, and is kept if the targets are met better. So many steps and no more; the same seed finds the same.
//! The walk counts the misses that are expected of uniform references; what it finds is judged by caches that see each reference.

use serde::Serialize;

use super::Error;
use super::parameters::specification;
use super::plan::Plan;
use super::profile::{Parameter, Profile};
use super::random::{Purpose, Random};
use super::targets::{Role, Targets};
use super::workload::Counting;

const STEPS_MAX: u32 = 1_000_000;
/// Runs that a step is judged by: their mean deviates a sixth as much as one does.
const RUNS: usize = 32;
/// How far steps go, of a parameter's range: at first, and at last.
const WIDTH_FIRST: f64 = 0.25;
const WIDTH_LAST: f64 = 0.004;
/// The share of steps that go anywhere in the ranges.
const LEAPS: f64 = 0.125;

/// A search.
#[derive(Clone, Debug)]
pub struct Fit {
    profile: Profile,
    targets: Targets,
}

/// What a search found.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Fitted {
    /// How many steps it went.
    pub steps: u32,
    /// By which seed.
    pub seed: u64,
    /// How many of them were kept.
    pub kept: u32,
    /// Of the profile it began with: the sum over the fitted targets of the square of how many tolerances each is off.
    pub score_before: f64,
    /// The same, at the end: never more.
    pub score: f64,
    /// What was chosen.
    pub parameters: Vec<FittedParameter>,
    /// What each target comes to.
    pub residuals: Vec<Residual>,
    /// The profile with what was chosen.
    #[serde(skip)]
    pub profile: Profile,
}

/// A parameter that was chosen.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FittedParameter {
    /// Its name.
    pub name: String,
    /// What it was.
    pub before: f64,
    /// What it is.
    pub value: f64,
    /// The least it could have been.
    pub from: f64,
    /// The most it could have been.
    pub to: f64,
}

/// What a target comes to.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Residual {
    /// The target's name.
    pub name: String,
    /// Whether it was searched for.
    pub role: Role,
    /// What it should be.
    pub target: Option<f64>,
    /// What it was.
    pub before: f64,
    /// What it is.
    pub value: f64,
}

impl Fit {
    /// Of these targets, from this profile on.
    ///
    /// # Errors
    ///
    /// A target or a free parameter that the profile cannot have; nothing free; nothing to fit.
    pub fn new(profile: Profile, targets: Targets) -> Result<Self, Error> {
        Plan::of(&targets, &profile)?;
        targets.check_free(&profile)?;
        let name = targets.profile.clone();
        if targets.free.is_empty() {
            let why = "no parameter is free; name some with [[free]]".into();
            return Err(Error::Target { name, why });
        }
        if !targets.targets.iter().any(|target| target.role == Role::Fitted) {
            let why =
                "none of the targets is to be fitted; give one a value and no other role".into();
            return Err(Error::Target { name, why });
        }
        Ok(Self { profile, targets })
    }

    /// Goes this many steps. Cost: some ten milliseconds a step, on all cores.
    ///
    /// # Errors
    ///
    /// More than a million steps.
    pub fn run(&self, steps: u32, seed: u64) -> Result<Fitted, Error> {
        if steps > STEPS_MAX {
            let remedy = "a few thousand are enough for a dozen parameters";
            let (count, most) = (u64::from(steps), u64::from(STEPS_MAX));
            return Err(Error::TooMuch { what: "steps", count, most, remedy });
        }
        let before: Vec<f64> =
            self.targets.free.iter().map(|free| self.start(&free.parameter)).collect();
        let (mut values, kept) = self.walk(&before, steps, seed)?;
        let judge = |profile: &Profile| {
            Plan::of(&self.targets, profile)?.means(RUNS, seed, Counting::Exact)
        };
        let of_before = judge(&self.profile)?;
        let score_before = self.targets.score(&of_before);
        let mut profile = self.with(&values)?;
        let mut of_values = judge(&profile)?;
        if self.targets.score(&of_values) > score_before {
            // Better for the walk, and not for the judge.
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

    /// From these values on; says how many steps were kept.
    fn walk(&self, from: &[f64], steps: u32, seed: u64) -> Result<(Vec<f64>, u32), Error> {
        let mut random = Random::of(seed, Purpose::Search);
        let mut best = from.to_vec();
        // What is only told takes time and changes nothing.
        let targets = self.targets.fitted();
        let judge = |profile: &Profile| {
            let means = Plan::of(&targets, profile)?.means(RUNS, seed, Counting::Expected)?;
            Ok::<f64, Error>(targets.score(&means))
        };
        let mut best_score = judge(&self.profile)?;
        let narrowing = libm::pow(WIDTH_LAST / WIDTH_FIRST, 1.0 / f64::from(steps.max(1)));
        let (mut width, mut kept) = (WIDTH_FIRST, 0);
        for _ in 0..steps {
            let tried = self.step(&best, width, &mut random)?;
            width *= narrowing;
            // A device that would only collect garbage is no candidate.
            let Ok(profile) = self.with(&tried) else { continue };
            let Ok(score) = judge(&profile) else { continue };
            if score < best_score {
                (best, best_score, kept) = (tried, score, kept + 1);
            }
        }
        Ok((best, kept))
    }

    fn step(&self, from: &[f64], width: f64, random: &mut Random) -> Result<Vec<f64>, Error> {
        let always = random.below(from.len() as u32) as usize;
        // Now and then anywhere, since near by it may be all the same.
        let is_leap = random.unit() < LEAPS;
        let mut values = from.to_vec();
        for (index, (value, free)) in values.iter_mut().zip(&self.targets.free).enumerate() {
            // Drawn in any case: whether one is changed doesn't shift what the others are.
            let (is_changed, by, place) = (random.unit() < 0.4, random.normal(), random.unit());
            if !is_changed && index != always {
                continue;
            }
            let range = free.to - free.from;
            let near = (*value + by * width * range).clamp(free.from, free.to);
            *value = if is_leap { free.from + place * range } else { near };
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
        name = "told only"
        measure = "late_change_percent"
        role = "follows"
    "#;

    fn fit(text: &str) -> Result<Fit, Error> {
        Fit::new(Profile::built_in("bahn2019").unwrap(), text.parse()?)
    }

    #[test]
    fn a_fit_comes_closer_and_ends_where_it_may() {
        let fitted = fit(TEXT).unwrap().run(60, 1).unwrap();
        assert!(fitted.score_before > 50.0, "{fitted:?}");
        assert!(fitted.score < fitted.score_before / 10.0, "{fitted:?}");
        assert!(fitted.kept > 0);
        for parameter in &fitted.parameters {
            assert!(parameter.value >= parameter.from && parameter.value <= parameter.to);
        }
        assert_eq!(fitted.parameters[1].value.fract(), 0.0, "pages are whole");
        assert!((fitted.residuals[0].value - 30.0).abs() < 3.0);
        // What it found is a profile, marked as what it is.
        let again: Profile = fitted.profile.to_toml().parse().unwrap();
        let decode = again.get("decode").unwrap();
        assert!(decode.fitted && decode.value == fitted.parameters[0].value);
    }

    #[test]
    fn a_walk_leaves_where_all_near_by_is_the_same() {
        // Nothing misses until decoding takes three times as long.
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
    fn the_same_seed_finds_the_same_and_no_steps_find_nothing() {
        let fit = fit(TEXT).unwrap();
        assert_eq!(fit.run(15, 4).unwrap(), fit.run(15, 4).unwrap());
        let none = fit.run(0, 4).unwrap();
        assert_eq!((none.kept, none.score), (0, none.score_before));
        assert_eq!(none.parameters[0].value, none.parameters[0].before);
    }

    #[test]
    fn a_walk_that_ends_worse_is_not_taken() {
        for seed in 0..4 {
            let fitted = fit(TEXT).unwrap().run(3, seed).unwrap();
            assert!(fitted.score <= fitted.score_before, "{seed}");
        }
    }

    #[test]
    fn fits_of_nothing_and_without_end_are_refused() {
        let nothing_free = TEXT.replace("[[free]]", "[[unfree]]");
        assert!(nothing_free.parse::<Targets>().is_err());
        let (_, targets) = TEXT.split_once("[[target]]").unwrap();
        let none = format!("profile = \"bahn2019\"\n[[target]]{targets}");
        assert!(fit(&none).unwrap_err().to_string().contains("free"));
        let told = TEXT.replace("value = 30", "role = \"follows\"");
        assert!(fit(&told).unwrap_err().to_string().contains("fitted"));
        assert!(fit(TEXT).unwrap().run(u32::MAX, 1).is_err());
    }
}
