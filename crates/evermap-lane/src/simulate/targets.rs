//! Numbers that a simulation is compared with: where they stand, what is to be simulated for them, and whether parameters may be chosen for them.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Error;
use super::axis::Axis;
use super::measure::Measure;
use super::parameters::{full_name, specification};
use super::profile::Profile;

const TEXT_BYTES_MAX: usize = 1 << 20;
const TARGETS_MAX: usize = 200;

/// What a number is to the parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Free parameters are chosen so that it comes out.
    #[default]
    Fitted,
    /// It comes out without a parameter of its own.
    Follows,
    /// It does not come out, whatever is chosen.
    Unmatched,
    /// Another way to read what is published, and what that would come to.
    Reading,
}

impl Role {
    /// As in tables.
    pub fn name(self) -> &'static str {
        match self {
            Role::Fitted => "fitted",
            Role::Follows => "follows",
            Role::Unmatched => "cannot be matched",
            Role::Reading => "another reading",
        }
    }
}

/// What is simulated: a mode, a device, and parameters that are other than in the profile.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct Case {
    pub(super) mode: Option<String>,
    pub(super) device: Option<String>,
    #[serde(flatten)]
    pub(super) parameters: BTreeMap<String, f64>,
}

/// A number to compare with.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// What it is, in words.
    pub name: String,
    /// Where it stands.
    #[serde(default)]
    pub figure: String,
    /// What is compared.
    pub measure: Measure,
    /// What it should be; none if only the model says something.
    pub value: Option<f64>,
    /// How far off is as good as met: 1 of a fit's score.
    #[serde(default = "one")]
    pub tolerance: f64,
    /// Whether parameters are chosen for it.
    #[serde(default)]
    pub role: Role,
    /// Why it is so, or can't be.
    #[serde(default)]
    pub why: String,
    #[serde(default)]
    pub(super) at: Case,
    pub(super) against: Option<Case>,
    pub(super) over: Option<String>,
}

fn one() -> f64 {
    1.0
}

/// A parameter that may be chosen.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Free {
    /// Its full name.
    pub parameter: String,
    /// The least it may be.
    pub from: f64,
    /// The most it may be.
    pub to: f64,
}

/// Numbers to compare with, and the parameters that may be chosen for them.
#[derive(Clone, Debug, PartialEq)]
pub struct Targets {
    /// The profile that they are for.
    pub profile: String,
    /// What may be chosen.
    pub free: Vec<Free>,
    /// The numbers.
    pub targets: Vec<Target>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    profile: String,
    #[serde(default)]
    free: Vec<Free>,
    target: Vec<Target>,
}

impl Targets {
    /// What is published of the study that the profile `bahn2019` is of.
    ///
    /// # Errors
    ///
    /// None, as its test says.
    pub fn bahn2019() -> Result<Self, Error> {
        include_str!("profiles/bahn2019-targets.toml").parse()
    }

    /// Those alone that are fitted.
    pub(super) fn fitted(&self) -> Self {
        let targets = self.targets.iter().filter(|target| target.role == Role::Fitted);
        Self { targets: targets.cloned().collect(), ..self.clone() }
    }

    /// Checks that what is free can be chosen in this profile.
    pub(super) fn check_free(&self, profile: &Profile) -> Result<(), Error> {
        for (index, free) in self.free.iter().enumerate() {
            let of = specification(&free.parameter)?;
            of.check(&free.parameter, free.from)?;
            of.check(&free.parameter, free.to)?;
            let is_twice = self.free[..index].iter().any(|one| one.parameter == free.parameter);
            if profile.get(&free.parameter).is_none() || free.from >= free.to || is_twice {
                let value = format!("{} to {}", free.from, free.to);
                let why =
                    "a free parameter is one of the profile's, named once, and its range goes up"
                        .into();
                return Err(Error::Impossible { key: free.parameter.clone(), value, why });
            }
        }
        Ok(())
    }

    /// The sum over the fitted ones of the square of how many tolerances each is off, given what each comes to.
    pub(super) fn score(&self, values: &[f64]) -> f64 {
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
                "{} bytes are too many, {TEXT_BYTES_MAX} at most",
                text.len()
            )));
        }
        let File { profile, free, target: targets } =
            toml::from_str(text).map_err(|error| syntax(error.to_string()))?;
        if targets.is_empty() || targets.len() > TARGETS_MAX {
            return Err(syntax(format!(
                "1 to {TARGETS_MAX} targets are needed, not {}",
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
            return Err(self.wrong("its tolerance is a number above 0"));
        }
        match self.value {
            Some(value) if !value.is_finite() => return Err(self.wrong("its value is a number")),
            None if self.role == Role::Fitted => {
                return Err(self.wrong(
                    "without a value, nothing can be fitted; give it one, or another role",
                ));
            }
            _ => {}
        }
        let over = self.over.as_deref().map(str::parse::<Axis>).transpose()?;
        if let Some(axis) = over
            && self.at.parameters.keys().any(|key| full_name(key) == axis.parameter())
        {
            return Err(self.wrong("`at` says what `over` goes over; leave one of them out"));
        }
        if self.measure.is_comparison() != self.against.is_some() {
            return Err(self.wrong(
                "`against` says which case it is compared with, for reductions and utilisations and no others",
            ));
        }
        Ok(())
    }

    /// How many tolerances this is off; none if nothing is published.
    pub(super) fn tolerances_off(&self, value: f64) -> Option<f64> {
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
    fn every_published_number_says_why_it_is_what_it_is() {
        let targets = Targets::bahn2019().unwrap();
        assert!(targets.targets.iter().all(|target| !target.why.is_empty()));
    }

    #[test]
    fn what_the_profile_marks_as_fitted_is_what_may_be_chosen() {
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
        for (what, instead, told) in [
            ("tolerance = 2", "tolerance = 0", "tolerance"),
            ("tolerance = 2", "tolerence = 2", "tolerence"),
            ("value = 90", "value = nan", "value"),
            ("value = 90", "", "fitted"),
            ("missed_reduction_percent", "missed_reduction", "missed_reduction"),
            ("against =", "# against =", "against"),
            ("\"missed_reduction_percent\"", "\"missed\"", "against"),
            ("{ mode = \"nonblocking\"", "{ \"cache.capacity_percent\" = 3", "goes over"),
            ("profile =", "profil =", "profil"),
        ] {
            assert!(TEXT.contains(what), "{what}");
            let error = TEXT.replacen(what, instead, 1).parse::<Targets>().unwrap_err().to_string();
            assert!(error.contains(told), "{instead}: {error}");
        }
        let profile = Profile::built_in("bahn2019").unwrap();
        for (what, instead, told) in [
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
            assert!(error.contains(told), "{instead}: {error}");
        }
    }
}
