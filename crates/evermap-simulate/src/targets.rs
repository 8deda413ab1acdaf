//! Targets: published numbers, the cases to simulate for them, and the parameters that may be
//! fitted.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::axis::Axis;
use crate::error::Error;
use crate::measure::Measure;
use crate::parameters::{full_name, specification};
use crate::profile::Profile;

const TEXT_BYTES_MAX: usize = 1 << 20;
const TARGETS_MAX: usize = 200;

/// Relation of a target to the free parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Parameters are fitted to this target.
    #[default]
    Fitted,
    /// The model matches the target without a parameter fitted to it.
    Follows,
    /// The model cannot match the target with any parameters.
    Unmatched,
    /// Alternative interpretation of a published number.
    Reading,
}

impl Role {
    /// Returns the text for tables.
    pub fn name(self) -> &'static str {
        match self {
            Role::Fitted => "fitted",
            Role::Follows => "follows",
            Role::Unmatched => "cannot be matched",
            Role::Reading => "another reading",
        }
    }
}

/// Case to simulate: mode, device, and parameters that differ from the profile.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(crate) struct Case {
    pub(crate) mode: Option<String>,
    pub(crate) device: Option<String>,
    #[serde(flatten)]
    pub(crate) parameters: BTreeMap<String, f64>,
}

/// Number to compare with.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Description.
    pub name: String,
    /// Figure of the publication.
    #[serde(default)]
    pub figure: String,
    /// Measure to compare.
    pub measure: Measure,
    /// Published value, or `None` if only the model has one.
    pub value: Option<f64>,
    /// Difference that counts as a match: 1 in the score of a fit.
    #[serde(default = "one")]
    pub tolerance: f64,
    /// Relation to the free parameters.
    #[serde(default)]
    pub role: Role,
    /// Explanation of the result.
    #[serde(default)]
    pub why: String,
    #[serde(default)]
    pub(crate) at: Case,
    pub(crate) against: Option<Case>,
    pub(crate) over: Option<String>,
}

fn one() -> f64 {
    1.0
}

/// Parameter that a fit may change.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FreeParameter {
    /// Full name of the parameter.
    pub parameter: String,
    /// Minimum.
    pub from: f64,
    /// Maximum.
    pub to: f64,
}

/// Set of targets, and the parameters that a fit may change.
#[derive(Clone, Debug, PartialEq)]
pub struct Targets {
    /// Name of the profile that they apply to.
    pub profile: String,
    /// Free parameters.
    pub free: Vec<FreeParameter>,
    /// The targets.
    pub targets: Vec<Target>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    profile: String,
    #[serde(default)]
    free: Vec<FreeParameter>,
    target: Vec<Target>,
}

impl Targets {
    /// Returns the published numbers of the study behind the profile `bahn2019`.
    ///
    /// # Errors
    ///
    /// Never fails: a test parses the built-in text.
    pub fn bahn2019() -> Result<Self, Error> {
        include_str!("profiles/bahn2019-targets.toml").parse()
    }

    /// Returns the targets with the role `fitted`.
    pub(crate) fn fitted(&self) -> Self {
        let targets = self.targets.iter().filter(|target| target.role == Role::Fitted);
        Self { targets: targets.cloned().collect(), ..self.clone() }
    }

    /// Checks that a fit can change the free parameters of this profile.
    pub(crate) fn check_free(&self, profile: &Profile) -> Result<(), Error> {
        for (index, free) in self.free.iter().enumerate() {
            let of = specification(&free.parameter)?;
            of.check(&free.parameter, free.from)?;
            of.check(&free.parameter, free.to)?;
            let is_twice = self.free[..index].iter().any(|one| one.parameter == free.parameter);
            if profile.get(&free.parameter).is_none() || free.from >= free.to || is_twice {
                let value = format!("{} to {}", free.from, free.to);
                let why =
                    "a free parameter must be in the profile, be named once, and have a range that goes up"
                        .into();
                return Err(Error::InvalidValue { key: free.parameter.clone(), value, why });
            }
        }
        Ok(())
    }

    /// Returns the sum over the fitted targets of the squared difference in tolerances. `values`
    /// has the value of each target.
    pub(crate) fn score(&self, values: &[f64]) -> f64 {
        let of = self.targets.iter().zip(values);
        let off = of.filter(|(target, _)| target.role == Role::Fitted);
        let off = off.filter_map(|(target, &value)| target.tolerances_off(value));
        off.map(|off| off * off).sum()
    }
}

impl FromStr for Targets {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let syntax = |why: String| Error::Syntax { what: "the targets", why };
        if text.len() > TEXT_BYTES_MAX {
            return Err(syntax(format!(
                "there are {} bytes, and {TEXT_BYTES_MAX} are allowed",
                text.len()
            )));
        }
        let File { profile, free, target: targets } =
            toml::from_str(text).map_err(|error| syntax(error.to_string()))?;
        if targets.is_empty() || targets.len() > TARGETS_MAX {
            return Err(syntax(format!(
                "there must be 1 to {TARGETS_MAX} targets, not {}",
                targets.len()
            )));
        }
        for target in &targets {
            target.check()?;
        }
        Ok(Self { profile, free, targets })
    }
}

impl Target {
    fn wrong(&self, why: impl Into<String>) -> Error {
        Error::Target { name: self.name.clone(), why: why.into() }
    }

    fn check(&self) -> Result<(), Error> {
        if !(self.tolerance > 0.0 && self.tolerance.is_finite()) {
            return Err(self.wrong("its tolerance must be above 0"));
        }
        match self.value {
            Some(value) if !value.is_finite() => {
                return Err(self.wrong("its value must be a finite number"));
            }
            None if self.role == Role::Fitted => {
                return Err(
                    self.wrong("a fitted target needs a value; add one, or set another role")
                );
            }
            _ => {}
        }
        let over = self.over.as_deref().map(str::parse::<Axis>).transpose()?;
        if let Some(axis) = over
            && self.at.parameters.keys().any(|key| full_name(key) == axis.parameter())
        {
            return Err(
                self.wrong("`at` sets the parameter that `over` varies; remove one of them")
            );
        }
        if self.measure.is_comparison() != self.against.is_some() {
            return Err(self.wrong(
                "reductions and changes of utilisation need `against`, the case to compare with; other measures must not have it",
            ));
        }
        Ok(())
    }

    /// Returns the difference from the target in tolerances, or `None` if it has no value.
    pub(crate) fn tolerances_off(&self, value: f64) -> Option<f64> {
        self.value.map(|published| (value - published) / self.tolerance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        profile = "bahn2019"
        [[free]]
        parameter = "frames.decode_ms_mean"
        from = 5
        to = 20
        [[target]]
        name = "a reduction"
        measure = "missed_reduction_percent"
        value = 90
        tolerance = 2
        over = "capacity=40,80"
        at = { mode = "nonblocking", device = "pcram" }
        against = { mode = "blocking", device = "nand", "io.wait_percent" = 10 }
    "#;

    #[test]
    fn every_target_has_an_explanation() {
        let targets = Targets::bahn2019().unwrap();
        assert!(targets.targets.iter().all(|target| !target.why.is_empty()));
    }

    #[test]
    fn the_free_parameters_are_those_marked_as_fitted_in_the_profile() {
        let targets = Targets::bahn2019().unwrap();
        let profile = Profile::built_in("bahn2019").unwrap();
        let mut free: Vec<&str> = targets.free.iter().map(|free| free.parameter.as_str()).collect();
        free.sort_unstable();
        let fitted: Vec<&str> = profile
            .parameters()
            .filter(|(_, parameter)| parameter.fitted)
            .map(|(key, _)| key)
            .collect();
        assert_eq!(free, fitted);
        for free in &targets.free {
            let value = profile.get(&free.parameter).unwrap().value;
            assert!(value >= free.from && value <= free.to, "{}", free.parameter);
        }
    }

    #[test]
    fn malformed_targets_are_refused() {
        for (what, instead, expected) in [
            ("tolerance = 2", "tolerance = 0", "tolerance"),
            ("tolerance = 2", "tolerence = 2", "tolerence"),
            ("value = 90", "value = nan", "value"),
            ("value = 90", "", "fitted"),
            ("missed_reduction_percent", "missed_reduction", "missed_reduction"),
            ("against =", "# against =", "against"),
            ("\"missed_reduction_percent\"", "\"missed\"", "against"),
            ("{ mode = \"nonblocking\"", "{ \"cache.capacity_percent\" = 3", "`over` varies"),
            ("profile =", "profil =", "profil"),
        ] {
            assert!(TEXT.contains(what), "{what}");
            let error = TEXT.replacen(what, instead, 1).parse::<Targets>().unwrap_err().to_string();
            assert!(error.contains(expected), "{instead}: {error}");
        }
        let profile = Profile::built_in("bahn2019").unwrap();
        for (what, instead, expected) in [
            ("from = 5", "from = 25", "frames.decode_ms_mean"),
            ("from = 5", "from = -5", "frames.decode_ms_mean"),
            ("frames.decode_ms_mean", "frames.decode", "frames.decode"),
            (
                "[[target]]",
                "[[free]]\nparameter = \"frames.decode_ms_mean\"\nfrom = 1\nto = 2\n[[target]]",
                "named once",
            ),
        ] {
            let targets: Targets = TEXT.replacen(what, instead, 1).parse().unwrap();
            let error = targets.check_free(&profile).unwrap_err().to_string();
            assert!(error.contains(expected), "{instead}: {error}");
        }
    }
}
