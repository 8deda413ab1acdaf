//! Policy of a lane, read from a TOML file.
//!
//! A lane acts on nothing else. Observing a program only suggests a policy for the user to review.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::with_remedy;
use crate::{Error, Period, Result};

/// Maximum size of a policy file. A longer file is not a policy.
const BYTES_MAX: u64 = 1 << 20;
/// The kernel's unbound work occupies a core for up to 3 ms at a time. Programs with deadlines
/// beyond about three times that do not miss them because of it.
const CLOSE_DEADLINE_NS: u64 = 10_000_000;

/// Settings of a lane for one program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// Program: its timing and its scheduling.
    pub app: App,
    /// I/O mode.
    pub io: Io,
    /// Placement of the program's files.
    pub tier: Tier,
    /// Limits.
    pub guard: Guard,
}

/// Program settings: its timing and its scheduling.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct App {
    /// Pattern of paths or names of programs that the policy is for. `None` matches any program.
    #[serde(rename = "match", skip_serializing_if = "Option::is_none")]
    pub matches: Option<String>,
    /// Frames a second, as in `24`, `23.976` or `24000/1001`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fps: Option<Rate>,
    /// Alternative to `fps`: the period in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_us: Option<u64>,
    /// Deadline in microseconds after the period's beginning. Default: the period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_us: Option<u64>,
    /// Processor time in each period, for `deadline` scheduling. Default: four fifths of the
    /// deadline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_us: Option<u64>,
    /// Kernel scheduling policy.
    pub scheduler: Scheduler,
    /// Real-time priority, 1 to 98. The lane's watchdog runs one above it.
    pub priority: u8,
    /// Core of the lane.
    pub core: Core,
    /// Use of that core by other programs.
    pub share: Share,
    /// Threads that are in the lane.
    pub threads: Threads,
    /// Place of the kernel's unbound work.
    pub workqueues: Workqueues,
}

impl Default for App {
    fn default() -> Self {
        Self {
            matches: None,
            fps: None,
            period_us: None,
            deadline_us: None,
            budget_us: None,
            scheduler: Scheduler::Fifo,
            priority: 50,
            core: Core::Auto,
            share: Share::Lend,
            threads: Threads::All,
            workqueues: Workqueues::Auto,
        }
    }
}

/// Frames a second, as a number or text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "`fps` is a number, as 24 or 23.976, or \"24000/1001\"")]
pub enum Rate {
    /// `24`.
    Whole(u64),
    /// `23.976`, which means 24000/1001, as do the other NTSC decimals.
    Decimal(f64),
    /// `"24000/1001"`.
    Text(String),
}

impl Rate {
    fn period(&self) -> Result<Period, String> {
        match self {
            Rate::Whole(rate) => rate.to_string().parse(),
            Rate::Decimal(rate) => rate.to_string().parse(),
            Rate::Text(text) => text.parse(),
        }
    }
}

/// Kernel scheduling policy of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheduler {
    /// `SCHED_FIFO`: runs before all ordinary programs whenever it wants to run.
    #[default]
    Fifo,
    /// `SCHED_DEADLINE`: a budget in each period. The kernel refuses it to pinned programs, so it
    /// cannot be combined with one core.
    Deadline,
    /// Ordinary scheduling.
    Other,
}

/// Core of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Core {
    /// Chosen: a core that serves no disk interrupts and has no other lane.
    #[default]
    Auto,
    /// Core of this number.
    Number(u32),
}

impl Serialize for Core {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Core::Auto => serializer.serialize_str("auto"),
            Core::Number(number) => serializer.serialize_u32(*number),
        }
    }
}

impl<'de> Deserialize<'de> for Core {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(u32),
            Name(String),
        }
        match Either::deserialize(deserializer) {
            Ok(Either::Number(number)) => Ok(Core::Number(number)),
            Ok(Either::Name(name)) if name == "auto" => Ok(Core::Auto),
            _ => {
                Err(serde::de::Error::custom("`core` is \"auto\" or the number of a core, from 0"))
            }
        }
    }
}

/// Use of a lane's core by other programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Share {
    /// Others run while the program sleeps.
    #[default]
    Lend,
    /// No other program runs on the core, even while the program sleeps. Costs the others a core.
    Hold,
    /// The lane has no core.
    Off,
}

/// Threads of a program that are in the lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Threads {
    /// All threads, including those started later. Programs that it starts are not included.
    #[default]
    All,
    /// First thread only.
    Main,
}

/// Place of the kernel's unbound work, such as writeback. A kernel built without preemption makes a
/// real-time program wait for this work, up to some milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Workqueues {
    /// On other cores for real-time programs with deadlines of 10 ms or less; otherwise unchanged.
    #[default]
    Auto,
    /// On other cores than the lane's. Needs root.
    Away,
    /// Unchanged.
    Stay,
}

/// I/O settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Io {
    /// I/O mode.
    pub mode: IoMode,
    /// `nowait`: read-ahead distance in milliseconds at the rate at which the program reads.
    pub ahead_ms: u64,
    /// `uring`: time to poll for a completion before the program sleeps. A poller that never sleeps
    /// starves the kernel's own work.
    pub spin_us: u64,
    /// Locks and prefaults all memory of the program before the first period. Default: true. A
    /// program that `run` starts must lock its memory itself; the report says so if this is set
    /// explicitly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock_memory: Option<bool>,
}

impl Default for Io {
    fn default() -> Self {
        Self { mode: IoMode::Map, ahead_ms: 500, spin_us: 200, lock_memory: None }
    }
}

impl Io {
    /// Returns true if memory is locked.
    pub fn locks_memory(&self) -> bool {
        self.lock_memory.unwrap_or(true)
    }
}

/// Method that serves a program's reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IoMode {
    /// Loads from a mapping of the copy on the tier: no system call and no wait.
    #[default]
    Map,
    /// A helper reads ahead into locked memory. Reads that it has not covered try `RWF_NOWAIT`
    /// first and wait for the disk last.
    Nowait,
    /// `io_uring`, polling for completions for a bounded time.
    Uring,
    /// `pread`.
    Blocking,
}

/// Placement of files on the tier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tier {
    /// Patterns of files to place.
    pub files: Vec<String>,
    /// Directory on the fast tier. `None` is memory (`/dev/shm`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Upper bound of bytes placed, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_mib: Option<u64>,
    /// Placement method.
    pub mode: Placement,
    /// For experiments: additional latency of each 4 KiB read from the tier.
    #[serde(skip_serializing_if = "is_zero")]
    pub inject_ns_per_4k: u64,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl Default for Tier {
    fn default() -> Self {
        Self {
            files: Vec::new(),
            path: None,
            budget_mib: None,
            mode: Placement::View,
            inject_ns_per_4k: 0,
        }
    }
}

/// Method of placing a file on the tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// Read-only copy that only the program sees, in a private mount namespace.
    #[default]
    View,
    /// The file moves to the tier and a link takes its place. For tiers that survive a restart.
    Switch,
}

/// Limits of a lane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Guard {
    /// Number of periods that a program may run without sleeping before it loses its priority.
    pub max_overrun: u64,
    /// Lifetime of the lane in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_time_s: Option<u64>,
}

impl Default for Guard {
    fn default() -> Self {
        Self { max_overrun: 8, max_time_s: None }
    }
}

impl Policy {
    /// Reads a policy file and validates it.
    pub fn read(path: &Path) -> Result<Self> {
        let remedy = "name a readable file (docs/lane.md, section 3, describes its contents)";
        let failed = |source| Error::Io {
            operation: "read the policy",
            path: path.into(),
            source: with_remedy(source, remedy),
        };
        let wrong = |what| Error::Policy { path: path.into(), what };
        let text = read_bounded(path).map_err(failed)?.ok_or_else(|| {
            wrong(format!(
                "the file is longer than {BYTES_MAX} bytes, so it is not a policy: name another file"
            ))
        })?;
        Self::parse(&text).map_err(wrong)
    }

    /// Parses and validates TOML. The error names the setting and its line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let policy: Self =
            toml::from_str(text).map_err(|error| error.to_string().trim().to_owned())?;
        policy.verify()?;
        Ok(policy)
    }

    /// Formats the policy as TOML that [`parse`](Self::parse) accepts.
    pub fn to_toml(&self) -> Result<String, String> {
        toml::to_string(self).map_err(|error| error.to_string())
    }

    /// Validates the settings. The error names the first invalid one.
    pub fn verify(&self) -> Result<(), String> {
        let app = &self.app;
        if let Some(pattern) = &app.matches {
            glob::Pattern::new(pattern).map_err(|error| {
                format!("`match = \"{pattern}\"` is not a valid pattern: {error}")
            })?;
        }
        if app.fps.is_some() && app.period_us.is_some() {
            return Err("`fps` and `period_us` both set the period: remove one of them".into());
        }
        let period = self.period()?;
        if !(1..=98).contains(&app.priority) {
            return Err(format!(
                "`priority = {}`: use 1 to 98 (99 is for the watchdog)",
                app.priority
            ));
        }
        let needs_period = [
            (app.deadline_us.is_some(), "deadline_us"),
            (app.budget_us.is_some(), "budget_us"),
            (app.scheduler == Scheduler::Deadline, "scheduler = \"deadline\""),
        ];
        if period.is_none()
            && let Some((_, name)) = needs_period.iter().find(|(is_there, _)| *is_there)
        {
            return Err(format!("`{name}` needs `fps` or `period_us`"));
        }
        if let (Some(period), Some(deadline_us)) = (period, app.deadline_us)
            && (deadline_us == 0
                || deadline_us.saturating_mul(1_000) > period.ns().saturating_add(1_000))
        {
            return Err(format!(
                "`deadline_us = {deadline_us}`: the deadline must lie within the period of {} us",
                period.ns() / 1_000
            ));
        }
        if let (Some(deadline_ns), Some(budget_us)) = (self.deadline_ns()?, app.budget_us)
            && (budget_us == 0 || budget_us.saturating_mul(1_000) > deadline_ns)
        {
            return Err(format!(
                "`budget_us = {budget_us}`: the processor time must lie within the deadline of {} us",
                deadline_ns / 1_000
            ));
        }
        if self.guard.max_overrun == 0 {
            return Err("`max_overrun = 0` would demote the program at once: use 1 or more".into());
        }
        if self.guard.max_time_s == Some(0) {
            return Err("`max_time_s = 0` would end the lane at once: use 1 or more".into());
        }
        Ok(())
    }

    /// Returns the period, or `None` if the policy sets none.
    pub fn period(&self) -> Result<Option<Period>, String> {
        match (&self.app.fps, self.app.period_us) {
            (Some(rate), _) => rate.period().map(Some).map_err(|what| format!("`fps`: {what}")),
            (None, Some(us)) => Period::of_us(us)
                .map(Some)
                .ok_or_else(|| format!("`period_us = {us}`: use 1 us to an hour")),
            (None, None) => Ok(None),
        }
    }

    /// Returns true if the kernel's unbound work should be kept off the lane's core.
    pub fn wants_workqueues_away(&self) -> bool {
        let is_close =
            || self.deadline_ns().ok().flatten().is_some_and(|ns| ns <= CLOSE_DEADLINE_NS);
        match self.app.workqueues {
            _ if self.app.share == Share::Off => false,
            Workqueues::Auto => self.app.scheduler != Scheduler::Other && is_close(),
            Workqueues::Away => true,
            Workqueues::Stay => false,
        }
    }

    /// Returns the deadline in nanoseconds after the period's beginning. A deadline that was
    /// rounded up to whole microseconds is cut to the period.
    pub fn deadline_ns(&self) -> Result<Option<u64>, String> {
        let deadline_ns = |period: Period| match self.app.deadline_us {
            Some(us) => us.saturating_mul(1_000).min(period.ns()),
            None => period.ns(),
        };
        Ok(self.period()?.map(deadline_ns))
    }
}

/// Reads a file's text. Returns `None` if it is longer than [`BYTES_MAX`].
fn read_bounded(path: &Path) -> io::Result<Option<String>> {
    let mut text = String::new();
    File::open(path)?.take(BYTES_MAX + 1).read_to_string(&mut text)?;
    Ok((text.len() as u64 <= BYTES_MAX).then_some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unbound_work_is_kept_off_the_core_for_short_deadlines() {
        let wants = |text: &str| Policy::parse(text).unwrap().wants_workqueues_away();
        assert!(wants("[app]\nperiod_us = 1000") && wants("[app]\nfps = 24\ndeadline_us = 10000"));
        assert!(!wants("[app]\nfps = 24") && !wants(""));
        assert!(wants("[app]\nfps = 24\nworkqueues = \"away\""));
        let not = ["workqueues = \"stay\"", "share = \"off\"", "scheduler = \"other\""];
        assert!(not.iter().all(|line| !wants(&format!("[app]\nperiod_us = 1000\n{line}"))));
    }

    #[test]
    fn an_empty_policy_means_lend_and_fifo() {
        let policy = Policy::parse("").unwrap();
        assert_eq!(policy, Policy::default());
        assert_eq!(policy.app.share, Share::Lend);
        assert_eq!(policy.app.scheduler, Scheduler::Fifo);
        assert_eq!(policy.period().unwrap(), None);
    }

    #[test]
    fn a_policy_survives_a_round_trip_through_toml() {
        let text = "[app]\nmatch = \"*/mpv\"\nfps = \"24000/1001\"\ndeadline_us = 30000\ncore = 1\nshare = \"hold\"\n\
                    [io]\nmode = \"nowait\"\n[tier]\nfiles = [\"*.mkv\"]\npath = \"/mnt/fast\"\nmode = \"switch\"\n[guard]\nmax_time_s = 60\n";
        let policy = Policy::parse(text).unwrap();
        assert_eq!(Policy::parse(&policy.to_toml().unwrap()).unwrap(), policy);
        assert_eq!(policy.deadline_ns().unwrap(), Some(30_000_000));
    }

    #[test]
    fn a_deadline_rounded_up_is_cut_to_the_period() {
        // The period has 41,666,666 ns; the kernel refuses a longer deadline.
        let policy = Policy::parse("[app]\nfps = 24\ndeadline_us = 41667\n").unwrap();
        let period_ns = policy.period().unwrap().unwrap().ns();
        assert_eq!(policy.deadline_ns().unwrap(), Some(period_ns));
        let mut by_hand = policy;
        by_hand.app.deadline_us = Some(u64::MAX);
        assert_eq!(by_hand.deadline_ns().unwrap(), Some(period_ns));
        assert!(by_hand.verify().is_err());
    }

    #[test]
    fn unreadable_and_endless_files_are_errors_with_name_and_remedy() {
        let missing = Policy::read(Path::new("/nowhere/policy.toml")).unwrap_err().to_string();
        assert!(missing.contains("/nowhere/policy.toml"), "{missing}");
        assert!(missing.contains("No such file") && missing.contains("section 3"), "{missing}");
        let endless = Policy::read(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(endless.contains("/dev/zero: the file is longer"), "{endless}");
    }

    #[test]
    fn a_rate_is_a_number_or_text() {
        let period =
            |fps: &str| Policy::parse(&format!("[app]\nfps = {fps}")).unwrap().period().unwrap();
        assert_eq!(period("23.976"), period("\"24000/1001\""));
        assert_eq!(period("24"), Period::of_rate(24, 1));
        assert_eq!(period("24.0"), Period::of_rate(24, 1));
    }

    #[test]
    fn invalid_settings_are_errors_that_name_valid_ones() {
        for (text, said) in [
            ("[app]\nfps = 24\nperiod_us = 5", "remove one of them"),
            ("[app]\nfps = 0", "is not a rate"),
            ("[app]\nfps = true", "is a number"),
            ("[app]\nmatch = \"[\"", "is not a valid pattern"),
            ("[app]\nperiod_us = 0", "1 us to an hour"),
            ("[app]\npriority = 99", "1 to 98"),
            ("[app]\npriority = 0", "1 to 98"),
            ("[app]\nscheduler = \"deadline\"", "needs `fps`"),
            ("[app]\ndeadline_us = 5", "needs `fps`"),
            ("[app]\nfps = 24\ndeadline_us = 41668000", "within the period"),
            ("[app]\nfps = 24\nbudget_us = 41668", "within the deadline"),
            ("[app]\ncore = \"first\"", "the number of a core"),
            ("[app]\ncore = -1", "the number of a core"),
            ("[app]\nshare = \"rent\"", "unknown variant"),
            ("[app]\nframes = 24", "unknown field"),
            ("[guard]\nmax_overrun = 0", "use 1 or more"),
            ("[guard]\nmax_time_s = 0", "use 1 or more"),
            ("[app", "line 1"),
        ] {
            let error = Policy::parse(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
