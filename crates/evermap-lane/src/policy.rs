//! What a program is to get: a file in TOML, acted on as it stands.
//!
//! The only thing that a lane acts on. What is observed of a program is only ever suggested, as a policy to look at.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::with_remedy;
use crate::{Error, Period, Result};

/// No policy is longer: what is, is another file.
const BYTES_MAX: u64 = 1 << 20;
/// The kernel's unbound work keeps a core for up to 3 ms at a time: who has more than three times that does not miss for it.
const CLOSE_DEADLINE_NS: u64 = 10_000_000;

/// What a program is to get.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// The program: when it has to be done, and who runs it.
    pub app: App,
    /// How its data come.
    pub io: Io,
    /// Which of its files are where.
    pub tier: Tier,
    /// What bounds it.
    pub guard: Guard,
}

/// The program: when it has to be done, and who runs it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct App {
    /// The programs that this is for, as a pattern of paths or names; any, without one.
    #[serde(rename = "match", skip_serializing_if = "Option::is_none")]
    pub matches: Option<String>,
    /// How often it has something to do: frames a second, as in `24`, `23.976` or `24000/1001`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fps: Option<Rate>,
    /// The same as microseconds from one to the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_us: Option<u64>,
    /// How long after its period's beginning it has to be done; the period, if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_us: Option<u64>,
    /// The processor time it takes in a period, for `deadline` scheduling; four fifths of the deadline, if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_us: Option<u64>,
    /// The kernel's policy for it.
    pub scheduler: Scheduler,
    /// Its real-time priority, 1 to 98; the lane's own watchman is above it.
    pub priority: u8,
    /// Which core.
    pub core: Core,
    /// What others get of that core.
    pub share: Share,
    /// Which of its threads.
    pub threads: Threads,
    /// Where the kernel's own unbound work is done.
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

/// Frames a second, as a number or as text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "`fps` is a number, as 24 or 23.976, or \"24000/1001\"")]
pub enum Rate {
    /// `24`.
    Whole(u64),
    /// `23.976`, which means 24000/1001, as all decimals of it do.
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

/// The kernel's policy for a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheduler {
    /// `SCHED_FIFO`: before all ordinary programs, whenever it wants to run.
    #[default]
    Fifo,
    /// `SCHED_DEADLINE`: a budget in each period. Not for one core: the kernel refuses it to pinned programs.
    Deadline,
    /// As all others.
    Other,
}

/// Which core a lane is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Core {
    /// One that serves no disk's interrupts and has no other lane.
    #[default]
    Auto,
    /// This one.
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

/// What others get of a lane's core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Share {
    /// All that the program leaves: they run while it sleeps.
    #[default]
    Lend,
    /// Nothing: the core is the program's alone, asleep or not. Costs the others a whole core.
    Hold,
    /// The program has no core of its own.
    Off,
}

/// Which threads of a program are in the lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Threads {
    /// All, also those that it starts later. Programs that it starts are never.
    #[default]
    All,
    /// The one it begins with.
    Main,
}

/// Where the kernel's own work that is bound to no core is done, as that of writing files back: a kernel that is built without preemption keeps a
/// real-time program waiting for it, up to some milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Workqueues {
    /// On other cores, for real-time programs with deadlines of 10 ms or less; else wherever it was.
    #[default]
    Auto,
    /// On other cores than the lane's. It takes root.
    Away,
    /// Wherever it was.
    Stay,
}

/// How data come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Io {
    /// Which way.
    pub mode: IoMode,
    /// How much of a file is read ahead of where the program is, as time at the rate it reads; for `nowait`.
    pub ahead_ms: u64,
    /// How long the ring is looked at before the program sleeps; for `uring`. A poller that never sleeps starves the kernel's own work.
    pub spin_us: u64,
    /// All memory of the program is locked and there before the first period; so it is unless this says no. A program that is started can do
    /// that only itself: whoever says yes hears so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock_memory: Option<bool>,
}

impl Default for Io {
    fn default() -> Self {
        Self { mode: IoMode::Map, ahead_ms: 500, spin_us: 200, lock_memory: None }
    }
}

impl Io {
    /// Whether memory is to be locked.
    pub fn locks_memory(&self) -> bool {
        self.lock_memory.unwrap_or(true)
    }
}

/// How a program's reads are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IoMode {
    /// Loads from a mapping of the tier's copy: no call, no waiting.
    #[default]
    Map,
    /// A helper reads ahead into locked memory; what is not there is asked for with `RWF_NOWAIT`, and waited for last.
    Nowait,
    /// A ring whose completions are polled for a bounded time.
    Uring,
    /// `pread`.
    Blocking,
}

/// Which files are where.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tier {
    /// Patterns of files.
    pub files: Vec<String>,
    /// The directory that is the fast tier; without one, memory (`/dev/shm`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// No more than this is put there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_mib: Option<u64>,
    /// How.
    pub mode: Placement,
    /// For experiments: every 4 KiB of the tier take this much longer.
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

/// How a file is put on the tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// A read-only copy that only the program sees, in a mount namespace of its own.
    #[default]
    View,
    /// The file itself goes there, and a link takes its place: for tiers that last.
    Switch,
}

/// What bounds a lane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Guard {
    /// A program that runs for this many periods without sleeping loses its priority.
    pub max_overrun: u64,
    /// The lane is over after this many seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_time_s: Option<u64>,
}

impl Default for Guard {
    fn default() -> Self {
        Self { max_overrun: 8, max_time_s: None }
    }
}

impl Policy {
    /// Of a file. Cost: reads it.
    pub fn read(path: &Path) -> Result<Self> {
        let remedy = "name a file that can be read; docs/lane.md, section 3, says what is in it";
        let failed = |source| Error::Io {
            operation: "read the policy",
            path: path.into(),
            source: with_remedy(source, remedy),
        };
        let wrong = |what| Error::Policy { path: path.into(), what };
        let text = read_bounded(path).map_err(failed)?.ok_or_else(|| {
            wrong(format!(
                "it is longer than {BYTES_MAX} bytes, which no policy is: name another file"
            ))
        })?;
        Self::parse(&text).map_err(wrong)
    }

    /// Of TOML. The error says what is wrong and where.
    pub fn parse(text: &str) -> Result<Self, String> {
        let policy: Self =
            toml::from_str(text).map_err(|error| error.to_string().trim().to_owned())?;
        policy.verify()?;
        Ok(policy)
    }

    /// As TOML that `parse` takes back.
    pub fn to_toml(&self) -> Result<String, String> {
        toml::to_string(self).map_err(|error| error.to_string())
    }

    /// Says what cannot be.
    pub fn verify(&self) -> Result<(), String> {
        let app = &self.app;
        if let Some(pattern) = &app.matches {
            glob::Pattern::new(pattern)
                .map_err(|error| format!("`match = \"{pattern}\"` is no pattern: {error}"))?;
        }
        if app.fps.is_some() && app.period_us.is_some() {
            return Err("`fps` and `period_us` say the same thing: leave one of them out".into());
        }
        let period = self.period()?;
        if !(1..=98).contains(&app.priority) {
            return Err(format!(
                "`priority = {}`: it is 1 to 98, and 99 is the watchman's",
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
            return Err(format!("`{name}` needs `fps` or `period_us` beside it"));
        }
        if let (Some(period), Some(deadline_us)) = (period, app.deadline_us)
            && (deadline_us == 0
                || deadline_us.saturating_mul(1_000) > period.ns().saturating_add(1_000))
        {
            return Err(format!(
                "`deadline_us = {deadline_us}`: a deadline is within its period, which is {} us",
                period.ns() / 1_000
            ));
        }
        if let (Some(deadline_ns), Some(budget_us)) = (self.deadline_ns()?, app.budget_us)
            && (budget_us == 0 || budget_us.saturating_mul(1_000) > deadline_ns)
        {
            return Err(format!(
                "`budget_us = {budget_us}`: the processor time of a period is within its deadline, {} us",
                deadline_ns / 1_000
            ));
        }
        if self.guard.max_overrun == 0 {
            return Err("`max_overrun = 0` would end every lane at once: 1 is the least".into());
        }
        if self.guard.max_time_s == Some(0) {
            return Err("`max_time_s = 0` would end the lane at once: 1 is the least".into());
        }
        Ok(())
    }

    /// How often the program has something to do; none if the policy does not say.
    pub fn period(&self) -> Result<Option<Period>, String> {
        match (&self.app.fps, self.app.period_us) {
            (Some(rate), _) => rate.period().map(Some).map_err(|what| format!("`fps`: {what}")),
            (None, Some(us)) => Period::of_us(us)
                .map(Some)
                .ok_or_else(|| format!("`period_us = {us}`: a period is 1 us to an hour long")),
            (None, None) => Ok(None),
        }
    }

    /// Whether the kernel's unbound work is to be done on other cores than the lane's, if that has one.
    pub fn wants_work_away(&self) -> bool {
        let is_close =
            || self.deadline_ns().ok().flatten().is_some_and(|ns| ns <= CLOSE_DEADLINE_NS);
        match self.app.workqueues {
            _ if self.app.share == Share::Off => false,
            Workqueues::Auto => self.app.scheduler != Scheduler::Other && is_close(),
            Workqueues::Away => true,
            Workqueues::Stay => false,
        }
    }

    /// How long after its period's beginning the program has to be done: never beyond the period, which microseconds may be rounded up to.
    pub fn deadline_ns(&self) -> Result<Option<u64>, String> {
        let deadline_ns = |period: Period| match self.app.deadline_us {
            Some(us) => us.saturating_mul(1_000).min(period.ns()),
            None => period.ns(),
        };
        Ok(self.period()?.map(deadline_ns))
    }
}

/// A file's text; none if it is longer than any policy.
fn read_bounded(path: &Path) -> io::Result<Option<String>> {
    let mut text = String::new();
    File::open(path)?.take(BYTES_MAX + 1).read_to_string(&mut text)?;
    Ok((text.len() as u64 <= BYTES_MAX).then_some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_work_is_kept_away_from_close_deadlines() {
        let wants = |text: &str| Policy::parse(text).unwrap().wants_work_away();
        assert!(wants("[app]\nperiod_us = 1000") && wants("[app]\nfps = 24\ndeadline_us = 10000"));
        assert!(!wants("[app]\nfps = 24") && !wants(""));
        assert!(wants("[app]\nfps = 24\nworkqueues = \"away\""));
        let not = ["workqueues = \"stay\"", "share = \"off\"", "scheduler = \"other\""];
        assert!(not.iter().all(|line| !wants(&format!("[app]\nperiod_us = 1000\n{line}"))));
    }

    #[test]
    fn an_empty_policy_is_lend_with_fifo() {
        let policy = Policy::parse("").unwrap();
        assert_eq!(policy, Policy::default());
        assert_eq!(policy.app.share, Share::Lend);
        assert_eq!(policy.app.scheduler, Scheduler::Fifo);
        assert_eq!(policy.period().unwrap(), None);
    }

    #[test]
    fn what_is_written_is_read_back() {
        let text = "[app]\nmatch = \"*/mpv\"\nfps = \"24000/1001\"\ndeadline_us = 30000\ncore = 1\nshare = \"hold\"\n\
                    [io]\nmode = \"nowait\"\n[tier]\nfiles = [\"*.mkv\"]\npath = \"/mnt/fast\"\nmode = \"switch\"\n[guard]\nmax_time_s = 60\n";
        let policy = Policy::parse(text).unwrap();
        assert_eq!(Policy::parse(&policy.to_toml().unwrap()).unwrap(), policy);
        assert_eq!(policy.deadline_ns().unwrap(), Some(30_000_000));
    }

    #[test]
    fn a_deadline_that_is_rounded_up_is_the_period() {
        // A period of 41,666,666 ns: the kernel refuses a deadline beyond it.
        let policy = Policy::parse("[app]\nfps = 24\ndeadline_us = 41667\n").unwrap();
        let period_ns = policy.period().unwrap().unwrap().ns();
        assert_eq!(policy.deadline_ns().unwrap(), Some(period_ns));
        let mut by_hand = policy;
        by_hand.app.deadline_us = Some(u64::MAX);
        assert_eq!(by_hand.deadline_ns().unwrap(), Some(period_ns));
        assert!(by_hand.verify().is_err());
    }

    #[test]
    fn a_file_that_cannot_be_one_is_said_with_its_name_and_what_to_do() {
        let missing = Policy::read(Path::new("/nowhere/policy.toml")).unwrap_err().to_string();
        assert!(missing.contains("/nowhere/policy.toml"), "{missing}");
        assert!(missing.contains("No such file") && missing.contains("section 3"), "{missing}");
        let endless = Policy::read(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(endless.contains("/dev/zero: it is longer"), "{endless}");
    }

    #[test]
    fn rates_are_numbers_or_texts() {
        let period =
            |fps: &str| Policy::parse(&format!("[app]\nfps = {fps}")).unwrap().period().unwrap();
        assert_eq!(period("23.976"), period("\"24000/1001\""));
        assert_eq!(period("24"), Period::of_rate(24, 1));
        assert_eq!(period("24.0"), Period::of_rate(24, 1));
    }

    #[test]
    fn what_cannot_be_is_said_with_what_can() {
        for (text, said) in [
            ("[app]\nfps = 24\nperiod_us = 5", "leave one of them out"),
            ("[app]\nfps = 0", "is no rate"),
            ("[app]\nfps = true", "is a number"),
            ("[app]\nmatch = \"[\"", "is no pattern"),
            ("[app]\nperiod_us = 0", "1 us to an hour"),
            ("[app]\npriority = 99", "1 to 98"),
            ("[app]\npriority = 0", "1 to 98"),
            ("[app]\nscheduler = \"deadline\"", "needs `fps`"),
            ("[app]\ndeadline_us = 5", "needs `fps`"),
            ("[app]\nfps = 24\ndeadline_us = 41668000", "within its period"),
            ("[app]\nfps = 24\nbudget_us = 41668", "within its deadline"),
            ("[app]\ncore = \"first\"", "the number of a core"),
            ("[app]\ncore = -1", "the number of a core"),
            ("[app]\nshare = \"rent\"", "unknown variant"),
            ("[app]\nframes = 24", "unknown field"),
            ("[guard]\nmax_overrun = 0", "1 is the least"),
            ("[guard]\nmax_time_s = 0", "1 is the least"),
            ("[app", "line 1"),
        ] {
            let error = Policy::parse(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
