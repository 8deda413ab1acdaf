//! Measures that are compared with published numbers, and their computation.

use serde::{Deserialize, Serialize};

use crate::model::Summary;

/// Measure of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Share of frames that missed their deadline.
    MissedPercent,
    /// Number of frames that missed their deadline.
    Missed,
    /// Reduction of misses against the other case; of the sums if the target has an axis.
    MissedReductionPercent,
    /// Mean completion, relative to the deadline.
    CompletionChangePercent,
    /// Mean completion of the frames that missed their deadline, relative to the deadline.
    LateChangePercent,
    /// Difference in utilisation to the other case, in percentage points. Context switches count as
    /// work.
    UtilisationChangePercent,
    /// Like the above, with context switches counted as overhead.
    UtilisationLessSwitchesChangePercent,
    /// Read rate of the device.
    ReadMibPerS,
}

impl Measure {
    /// Returns true if the measure compares two cases.
    pub(crate) fn is_comparison(self) -> bool {
        matches!(
            self,
            Measure::MissedReductionPercent
                | Measure::UtilisationChangePercent
                | Measure::UtilisationLessSwitchesChangePercent
        )
    }

    /// Returns the unit.
    pub fn unit(self) -> &'static str {
        match self {
            Measure::Missed => "frames",
            Measure::ReadMibPerS => "MiB/s",
            _ => "%",
        }
    }

    /// Computes the measure. Each point has its summary and, for comparisons, the other summary.
    pub(crate) fn of(self, points: &[(&Summary, Option<&Summary>)]) -> f64 {
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
