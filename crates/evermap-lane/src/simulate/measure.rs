//! What is compared with a published number, and how it is computed from what was simulated.

use serde::{Deserialize, Serialize};

use super::model::Summary;

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
    /// Whether it is the difference of two cases.
    pub(super) fn is_comparison(self) -> bool {
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
    pub(super) fn of(self, points: &[(&Summary, Option<&Summary>)]) -> f64 {
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
