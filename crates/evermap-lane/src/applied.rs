//! Parts of a policy that were applied, for the reports of lanes and of runs.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::sys::scheduler::Scheduling;
use crate::workqueues;

/// Part of a policy that was applied. Serialized as an object whose `part` is the name in snake
/// case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "part", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Applied {
    /// All memory of the process is locked.
    LockedMemory,
    /// The program may lock any amount of memory.
    NoMemoryLimit,
    /// The thread runs on this core, which is lent to other programs while the lane sleeps.
    LentCore {
        /// Number of the core.
        core: u32,
        /// Reasons for this core, in sentences.
        why: Vec<String>,
    },
    /// The core is held for the lane alone.
    HeldCore {
        /// Number of the core.
        core: u32,
        /// Control groups that hold it.
        groups: Vec<PathBuf>,
        /// Reasons for this core, in sentences.
        why: Vec<String>,
    },
    /// The program is pinned to the core.
    Pinned,
    /// The kernel's unbound work is done on other cores.
    Workqueues,
    /// Timers are late by this time at most on purpose.
    TimerSlack {
        /// Slack in nanoseconds.
        ns: u64,
    },
    /// `SCHED_FIFO`.
    Fifo {
        /// Priority, 1 to 99.
        priority: u32,
    },
    /// `SCHED_DEADLINE`, on any core.
    Deadline {
        /// Processor time in each period, in microseconds.
        runtime_us: u64,
        /// Deadline after the beginning of a period, in microseconds.
        deadline_us: u64,
        /// Length of a period, in microseconds.
        period_us: u64,
    },
    /// Files that the program reads from the tier.
    TierFiles {
        /// Number of files.
        files: usize,
    },
}

impl Applied {
    pub(crate) fn deadline(scheduling: &Scheduling) -> Self {
        Applied::Deadline {
            runtime_us: scheduling.runtime_ns / 1_000,
            deadline_us: scheduling.deadline_ns / 1_000,
            period_us: scheduling.period_ns / 1_000,
        }
    }
}

impl fmt::Display for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Applied::LockedMemory => f.write_str("all memory is locked"),
            Applied::NoMemoryLimit => f.write_str("no limit on locked memory"),
            Applied::LentCore { core, why } => {
                write!(f, "core {core}, lent to other programs while the lane sleeps")?;
                reasons(f, why)
            }
            Applied::HeldCore { core, groups, why } => {
                let groups: Vec<String> =
                    groups.iter().map(|group| group.display().to_string()).collect();
                write!(f, "core {core} held for the lane alone, by {}", groups.join(" and "))?;
                reasons(f, why)
            }
            Applied::Pinned => f.write_str("pinned to the core"),
            Applied::Workqueues => f.write_str(workqueues::LABEL),
            Applied::TimerSlack { ns } => write!(f, "timer slack of {ns} ns"),
            Applied::Fifo { priority } => write!(f, "SCHED_FIFO at priority {priority}"),
            Applied::Deadline { runtime_us, deadline_us, period_us } => write!(
                f,
                "SCHED_DEADLINE: {runtime_us} us of each {period_us} us, within {deadline_us} us, on any core"
            ),
            Applied::TierFiles { files: 1 } => f.write_str("1 file from the tier"),
            Applied::TierFiles { files } => write!(f, "{files} files from the tier"),
        }
    }
}

fn reasons(f: &mut fmt::Formatter<'_>, why: &[String]) -> fmt::Result {
    match why.is_empty() {
        true => Ok(()),
        false => write!(f, ": {}", why.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn parts_have_stable_names_and_are_read_again() {
        let parts = [
            (Applied::Pinned, r#"{"part":"pinned"}"#),
            (Applied::Fifo { priority: 50 }, r#"{"part":"fifo","priority":50}"#),
            (Applied::TimerSlack { ns: 1 }, r#"{"part":"timer_slack","ns":1}"#),
            (Applied::TierFiles { files: 2 }, r#"{"part":"tier_files","files":2}"#),
        ];
        for (part, text) in parts {
            assert_eq!(serde_json::to_string(&part).unwrap(), text);
            assert_eq!(serde_json::from_str::<Applied>(text).unwrap(), part);
        }
    }
}
