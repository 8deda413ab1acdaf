//! Rungs of the ladder, and turns on them. Each rung adds a part of a lane to the one before, so
//! the difference is its effect.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::background::Units;
use super::player::{Played, Preset};
use crate::policy::{Core, IoMode, Policy, Scheduler, Share};
use crate::{Rate, Tier};

/// Rung of the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Rung {
    /// No lane; `pread`.
    OrdinaryBlocking,
    /// No lane; direct `pread`.
    OrdinaryDirect,
    /// No lane; mapped copy on the tier.
    OrdinaryMap,
    /// Lent core; `pread`.
    LendBlocking,
    /// Lent core; `io_uring`.
    LendUring,
    /// Lent core; read-ahead.
    LendNowait,
    /// Lent core; mapped copy on the tier.
    LendMap,
    /// Deadline scheduling; `pread`.
    DeadlineBlocking,
    /// Held core; mapped copy on the tier.
    HoldMap,
}

impl Rung {
    /// All rungs, lowest first.
    pub const ALL: [Rung; 9] = [
        Rung::OrdinaryBlocking,
        Rung::OrdinaryDirect,
        Rung::OrdinaryMap,
        Rung::LendBlocking,
        Rung::LendUring,
        Rung::LendNowait,
        Rung::LendMap,
        Rung::DeadlineBlocking,
        Rung::HoldMap,
    ];

    /// Name of the rung, as in `lend-map`.
    pub fn name(self) -> &'static str {
        match self {
            Rung::OrdinaryBlocking => "ordinary-blocking",
            Rung::OrdinaryDirect => "ordinary-direct",
            Rung::OrdinaryMap => "ordinary-map",
            Rung::LendBlocking => "lend-blocking",
            Rung::LendUring => "lend-uring",
            Rung::LendNowait => "lend-nowait",
            Rung::LendMap => "lend-map",
            Rung::DeadlineBlocking => "deadline-blocking",
            Rung::HoldMap => "hold-map",
        }
    }

    /// Returns true if its frames are read from the disk.
    pub fn reads_disk(self) -> bool {
        !matches!(self, Rung::OrdinaryMap | Rung::LendMap | Rung::HoldMap)
    }

    pub(super) fn is_direct(self) -> bool {
        self == Rung::OrdinaryDirect
    }

    /// Policy of a player on this rung.
    pub fn policy(self, preset: Preset, inject_ns_per_4k: u64) -> Policy {
        let mut policy = Policy::default();
        policy.app.fps = Some(Rate::Whole(u64::from(preset.fps)));
        policy.app.core = Core::Auto;
        policy.app.share = Share::Lend;
        policy.tier = Tier { inject_ns_per_4k, ..Tier::default() };
        (policy.app.scheduler, policy.io.mode) = match self {
            Rung::OrdinaryBlocking | Rung::OrdinaryDirect => (Scheduler::Other, IoMode::Blocking),
            Rung::OrdinaryMap => (Scheduler::Other, IoMode::Map),
            Rung::LendBlocking => (Scheduler::Fifo, IoMode::Blocking),
            Rung::LendUring => (Scheduler::Fifo, IoMode::Uring),
            Rung::LendNowait => (Scheduler::Fifo, IoMode::Nowait),
            Rung::LendMap | Rung::HoldMap => (Scheduler::Fifo, IoMode::Map),
            Rung::DeadlineBlocking => (Scheduler::Deadline, IoMode::Blocking),
        };
        if self == Rung::HoldMap {
            policy.app.share = Share::Hold;
        }
        if policy.app.scheduler == Scheduler::Other {
            policy.app.share = Share::Off;
            policy.io.lock_memory = Some(false);
        }
        policy
    }
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Rung {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|rung| rung.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|rung| rung.name()).collect();
            format!("`{text}` is not a rung; use one of {}", names.join(", "))
        })
    }
}

/// Subject of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Subject {
    /// Rung, or `None` for the load alone.
    pub rung: Option<Rung>,
    /// Additional latency.
    pub inject_ns_per_4k: u64,
}

impl Subject {
    /// Name, as in `alone`, `lend-map`, `lend-map+50us`.
    pub fn name(&self) -> String {
        let name = self.rung.map_or("alone", Rung::name);
        match self.inject_ns_per_4k {
            0 => name.to_string(),
            ns => format!("{name}+{}us", ns as f64 / 1e3),
        }
    }
}

/// Turn with its result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Turn {
    /// Number of the round, from 0.
    pub round: usize,
    /// Program.
    pub preset: Preset,
    /// Subject.
    pub subject: Subject,
    /// Result of the player. `None` for the load alone.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub played: Option<Played>,
    /// Duration of the measurement of `units_per_s`.
    pub span_s: f64,
    /// Units that the load completed each second.
    pub units_per_s: Units,
    /// Cached bytes of the clip before the turn. `None` if the kernel does not report them.
    pub cached_bytes: Option<u64>,
}
