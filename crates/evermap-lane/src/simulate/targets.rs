//! Numbers that a simulation is compared with: where they stand, what is to be simulated for them, and whether parameters may be chosen for them.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Error;
use super::model::{Mode, Summary};
use super::parameters::specification;
use super::profile::Profile;
use super::scenario::{Scenario, run_all};
use super::sweep::Axis;
use super::workload::{Counting, Workload};

const TEXT_BYTES_MAX: usize = 1 << 20;
const TARGETS_MAX: usize = 200;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Deadlines missed, of all.
    MissedPercent,
    /// Deadlines missed.
    Missed,
    /// How many fewer are missed than in the case it is compared with; sums where several are gone over.
    MissedReductionPercent,
    /// The mean completion, above the deadline.
    CompletionChangePercent,
    /// The same of those frames alone that miss it.
    LateChangePercent,
    /// Utilisation, above that of the case it is compared with, in points; context switches count as work.
    UtilisationChangePercent,
    /// The same, where context switches are overhead.
    UtilisationLessSwitchesChangePercent,
    /// What is read from the device in a second.
    ReadMibPerS,
}

impl Measure {
    fn is_comparison(self) -> bool {
        matches!(
            self,
            Measure::MissedReductionPercent
                | Measure::UtilisationChangePercent
                | Measure::UtilisationLessSwitchesChangePercent
        )
    }

    /// What it is in.
    pub fn unit(self) -> &'static str {
        match self {
            Measure::Missed => "frames",
            Measure::ReadMibPerS => "MiB/s",
            _ => "%",
        }
    }

    /// Of the points gone over: of each, the summary and that it is compared with.
    fn of(self, points: &[(&Summary, Option<&Summary>)]) -> f64 {
        if self == Measure::MissedReductionPercent {
            let missed: f64 = points.iter().map(|(at, _)| at.missed_percent).sum();
            let before: f64 =
                points.iter().filter_map(|(_, against)| *against).map(|of| of.missed_percent).sum();
            return if before == 0.0 { 0.0 } else { 100.0 * (1.0 - missed / before) };
        }
        let one = |(at, against): &(&Summary, Option<&Summary>)| {
            let above = |of: &dyn Fn(&Summary) -> f64| of(at) - against.map_or(0.0, of);
            match self {
                Measure::MissedPercent | Measure::MissedReductionPercent => at.missed_percent,
                Measure::Missed => at.missed as f64,
                Measure::CompletionChangePercent => at.completion_change_percent,
                Measure::LateChangePercent => at.late_change_percent,
                Measure::UtilisationChangePercent => above(&|of| of.utilisation_percent),
                Measure::UtilisationLessSwitchesChangePercent => {
                    above(&|of| of.utilisation_less_switches_percent)
                }
                Measure::ReadMibPerS => at.read_mib_per_s,
            }
        };
        points.iter().map(one).sum::<f64>() / points.len().max(1) as f64
    }
}

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
struct Case {
    mode: Option<String>,
    device: Option<String>,
    #[serde(flatten)]
    parameters: BTreeMap<String, f64>,
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
    at: Case,
    against: Option<Case>,
    over: Option<String>,
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

    /// Checks that all of it can be simulated with this profile.
    pub(super) fn check(&self, profile: &Profile) -> Result<(), Error> {
        Plan::of(self, profile)?;
        for free in &self.free {
            let of = specification(&free.parameter)?;
            of.check(&free.parameter, free.from)?;
            of.check(&free.parameter, free.to)?;
            if profile.get(&free.parameter).is_none() || free.from >= free.to {
                let value = format!("{} to {}", free.from, free.to);
                let why = "a free parameter is one of the profile's, and its range goes up".into();
                return Err(Error::Impossible { key: free.parameter.clone(), value, why });
            }
        }
        Ok(())
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
        if self.measure.is_comparison() != self.against.is_some() {
            return Err(self.wrong(
                "`against` says which case it is compared with, for reductions and utilisations and no others",
            ));
        }
        Ok(())
    }

    /// What is simulated for it, point by point: the case, and that it is compared with.
    fn scenarios(&self, profile: &Profile) -> Result<Vec<Scenario>, Error> {
        let axis = self.over.as_deref().map(str::parse::<Axis>).transpose()?;
        let points: Vec<Option<f64>> = match &axis {
            Some(axis) => axis.values().iter().copied().map(Some).collect(),
            None => vec![None],
        };
        let mut scenarios = Vec::new();
        for point in points {
            let mut at = profile.clone();
            if let (Some(axis), Some(value)) = (&axis, point) {
                at.set(axis.parameter(), value)?;
            }
            self.at.apply(&mut at)?;
            scenarios.push(self.at.scenario(at.clone(), &Case::default())?);
            if let Some(against) = &self.against {
                against.apply(&mut at)?;
                scenarios.push(against.scenario(at, &self.at)?);
            }
        }
        Ok(scenarios)
    }
}

impl Case {
    fn apply(&self, profile: &mut Profile) -> Result<(), Error> {
        self.parameters.iter().try_for_each(|(key, &value)| profile.set(key, value))
    }

    fn scenario(&self, profile: Profile, otherwise: &Case) -> Result<Scenario, Error> {
        let mode = match self.mode.as_ref().or(otherwise.mode.as_ref()) {
            Some(mode) => mode.parse::<Mode>()?,
            None => profile.mode(),
        };
        let device = self.device.as_ref().or(otherwise.device.as_ref());
        let device = device.map_or(profile.device(), String::as_str).to_string();
        Scenario::of(profile, mode, &device)
    }
}

/// Everything that is simulated for all targets, and which part of it is whose.
pub(super) struct Plan {
    pub(super) scenarios: Vec<Scenario>,
    /// For each target: what is measured, where its scenarios begin, how many, and whether each second one is compared with.
    parts: Vec<(Measure, usize, usize, bool)>,
}

impl Plan {
    pub(super) fn of(targets: &Targets, profile: &Profile) -> Result<Self, Error> {
        let mut plan = Self { scenarios: Vec::new(), parts: Vec::new() };
        for target in &targets.targets {
            let scenarios = target.scenarios(profile)?;
            let from = plan.scenarios.len();
            plan.parts.push((target.measure, from, scenarios.len(), target.against.is_some()));
            plan.scenarios.extend(scenarios);
        }
        Ok(plan)
    }

    /// What each target's measure is, given what its scenarios came to.
    pub(super) fn values(&self, summaries: &[Summary]) -> Vec<f64> {
        let value = |&(measure, from, count, is_compared): &(Measure, usize, usize, bool)| {
            let mine = &summaries[from..from + count];
            let points: Vec<(&Summary, Option<&Summary>)> = if is_compared {
                mine.chunks(2).map(|two| (&two[0], two.get(1))).collect()
            } else {
                mine.iter().map(|one| (one, None)).collect()
            };
            measure.of(&points)
        };
        self.parts.iter().map(value).collect()
    }

    pub(super) fn run(&self, seed: u64, counting: Counting) -> Result<Vec<f64>, Error> {
        let workload = Workload::Drawn;
        let summaries = run_all(&self.scenarios, &workload, seed, counting, |run| run.summary)?;
        Ok(self.values(&summaries))
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
    fn the_published_numbers_can_be_simulated_with_their_profile() {
        let targets = Targets::bahn2019().unwrap();
        targets.check(&Profile::built_in(&targets.profile).unwrap()).unwrap();
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
    fn a_comparison_has_two_scenarios_a_point() {
        let targets: Targets = TEXT.parse().unwrap();
        let plan = Plan::of(&targets, &Profile::built_in("bahn2019").unwrap()).unwrap();
        let devices: Vec<&str> = plan.scenarios.iter().map(Scenario::device_name).collect();
        assert_eq!(devices, ["pcram", "nand", "pcram", "nand"]);
        let value = plan.run(1, Counting::Exact).unwrap()[0];
        assert!(value > 80.0 && value <= 100.0, "{value}");
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
            ("profile =", "profil =", "profil"),
        ] {
            assert!(TEXT.contains(what), "{what}");
            let error = TEXT.replacen(what, instead, 1).parse::<Targets>().unwrap_err().to_string();
            assert!(error.contains(told), "{instead}: {error}");
        }
        let profile = Profile::built_in("bahn2019").unwrap();
        for (what, instead, told) in [
            ("\"io.wait_percent\"", "\"io.wait\"", "io.wait"),
            ("\"pcram\"", "\"tape\"", "tape"),
            ("\"nonblocking\"", "\"slow\"", "slow"),
            ("capacity=40,80", "capacity=40,180", "180"),
            ("from = 5", "from = 25", "frames.decode_ms_mean"),
            ("from = 5", "from = -5", "frames.decode_ms_mean"),
            ("frames.decode_ms_mean", "frames.decode", "frames.decode"),
        ] {
            let targets: Targets = TEXT.replacen(what, instead, 1).parse().unwrap();
            let error = targets.check(&profile).unwrap_err().to_string();
            assert!(error.contains(told), "{instead}: {error}");
        }
    }
}
