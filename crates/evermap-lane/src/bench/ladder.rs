//! The ladder: rungs in turns beside the same load, so that what drifts on the machine drifts for all of them.
//!
//! Each round has every rung, and the load alone, in an order that is shuffled by the seed; every second round is the one before backwards (ABBA). Each player is a
//! process of its own; the clips have no names, so nothing is left whatever happens.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::time::ClockId;
use serde::{Deserialize, Serialize};

use super::background::{Background, Kept, Load, Units, own_path};
use super::child::{Launcher, Role};
use super::clip::Clip;
use super::player::{Play, Played, Preset, moment_ns};
use super::results::Results;
use super::rung::Rung;
use crate::random::Random;
use crate::{Error, Result};

/// A clip is no longer: players of longer ones begin again.
const CLIP_BYTES_MAX: u64 = 256 << 20;
/// What a player may take beyond its periods, for opening, before it counts as hanging.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often the load's units are looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How long the load runs before the first turn.
const WARM_UP: Duration = Duration::from_secs(1);
/// A turn is no longer than a day.
const TURN_MAX: Duration = Duration::from_secs(86_400);

/// What is measured.
#[derive(Clone, Debug)]
pub struct Ladder {
    /// How children are started.
    pub launcher: Launcher,
    /// Which rungs.
    pub rungs: Vec<Rung>,
    /// Which programs.
    pub presets: Vec<Preset>,
    /// For `lend-map`: it is measured again with every 4 KiB taking so many nanoseconds longer.
    pub inject_ns_per_4k: Vec<u64>,
    /// How long each turn is.
    pub turn: Duration,
    /// How often each rung has its turn.
    pub rounds: usize,
    /// What runs beside it.
    pub load: Load,
    /// Where the clips and what the writers write is.
    pub folder: PathBuf,
    /// Lanes' claims of cores; those of this user, without.
    pub state: Option<PathBuf>,
    /// Of the order.
    pub seed: u64,
}

/// What has a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Subject {
    /// The rung; none is the load alone.
    pub rung: Option<Rung>,
    /// What is injected.
    pub inject_ns_per_4k: u64,
}

impl Subject {
    /// `alone`, `lend-map`, `lend-map+50us`.
    pub fn name(&self) -> String {
        let name = self.rung.map_or("alone", Rung::name);
        match self.inject_ns_per_4k {
            0 => name.to_string(),
            ns => format!("{name}+{}us", ns as f64 / 1e3),
        }
    }
}

/// A turn, and what came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Turn {
    /// In which round, from 0.
    pub round: usize,
    /// Of which program.
    pub preset: Preset,
    /// What had it.
    pub subject: Subject,
    /// How it went; none for the load alone.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub played: Option<Played>,
    /// How long the span was that the next is of.
    pub span_s: f64,
    /// What the load got done meanwhile, each second.
    pub units_per_s: Units,
    /// Bytes of the clip in the page cache before it began; none where the kernel does not tell.
    pub cached_bytes: Option<u64>,
}

struct Clips {
    files: Vec<(Preset, File)>,
}

impl Ladder {
    /// Measures: `rounds * (rungs + 1) * presets` turns. `tell` is called before each, with its number, and how many there are.
    ///
    /// # Errors
    /// [`Error::Child`] if a process went wrong; the file system's. All children have ended then.
    pub fn run(&self, tell: impl FnMut(usize, usize, &Subject, &Preset)) -> Result<Results> {
        self.run_until(&AtomicBool::new(false), tell)
    }

    /// The same; `stop` ends it: the turn that it is at counts nowhere, and what the turns before came to is the result.
    ///
    /// # Errors
    /// As [`Ladder::run`].
    pub fn run_until(
        &self,
        stop: &AtomicBool,
        tell: impl FnMut(usize, usize, &Subject, &Preset),
    ) -> Result<Results> {
        if self.presets.is_empty() || self.rungs.is_empty() || self.rounds == 0 {
            return Err(Error::Unusable(
                "nothing to measure: rungs, rates and rounds are one at least".into(),
            ));
        }
        if self.turn > TURN_MAX {
            return Err(Error::Unusable("a turn is a day long at most".into()));
        }
        let order = self.order();
        let mut turns = Vec::new();
        match self.climb(&order, stop, tell, &mut turns) {
            // The signal that ends this process may have ended its children, too: that is no failure of theirs.
            Err(error) if !stop.load(Ordering::Relaxed) => Err(error),
            _ => Ok(Results::of(self.load.clone(), self.seed, order.len(), turns)),
        }
    }

    /// Has the turns, as far as nobody stops it.
    fn climb(
        &self,
        order: &[(usize, Preset, Subject)],
        stop: &AtomicBool,
        mut tell: impl FnMut(usize, usize, &Subject, &Preset),
        turns: &mut Vec<Turn>,
    ) -> Result<()> {
        let clips = self.clips()?;
        let mut background = Background::start(&self.launcher, &self.load, &self.folder)?;
        std::thread::sleep(WARM_UP);
        for (at, (round, preset, subject)) in order.iter().enumerate() {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            tell(at + 1, order.len(), subject, preset);
            background.verify()?;
            let turn = self.turn(*round, *preset, *subject, &clips, &background, stop)?;
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            turns.push(turn);
        }
        background.verify()
    }

    /// Who has which turn.
    fn order(&self) -> Vec<(usize, Preset, Subject)> {
        let plain = |rung| Subject { rung, inject_ns_per_4k: 0 };
        let mut subjects = vec![plain(None)];
        subjects.extend(self.rungs.iter().map(|rung| plain(Some(*rung))));
        subjects.extend(
            self.inject_ns_per_4k
                .iter()
                .filter(|ns| **ns > 0)
                .map(|ns| Subject { rung: Some(Rung::LendMap), inject_ns_per_4k: *ns }),
        );
        let mut one: Vec<(Preset, Subject)> = self
            .presets
            .iter()
            .flat_map(|preset| subjects.iter().map(|subject| (*preset, *subject)))
            .collect();
        let mut random = Random::new(self.seed);
        let mut all = Vec::new();
        for round in 0..self.rounds {
            match round % 2 {
                0 => random.shuffle(&mut one),
                _ => one.reverse(),
            }
            all.extend(one.iter().map(|(preset, subject)| (round, *preset, *subject)));
        }
        all
    }

    fn clips(&self) -> Result<Clips> {
        let clip = |preset: &Preset| {
            let frames_max = (CLIP_BYTES_MAX / preset.frame_bytes.max(1) as u64).max(1);
            let clip = Clip {
                frames: self.periods(preset).clamp(1, frames_max),
                frame_bytes: preset.frame_bytes,
            };
            Ok((*preset, clip.nameless(&self.folder)?))
        };
        Ok(Clips { files: self.presets.iter().map(clip).collect::<Result<_>>()? })
    }

    fn periods(&self, preset: &Preset) -> u64 {
        (self.turn.as_secs_f64() * f64::from(preset.fps)).ceil().max(1.0) as u64
    }

    fn turn(
        &self,
        round: usize,
        preset: Preset,
        subject: Subject,
        clips: &Clips,
        background: &Background,
        stop: &AtomicBool,
    ) -> Result<Turn> {
        let Some(rung) = subject.rung else {
            let mut looks = Looks::default();
            let end = Instant::now() + self.turn;
            while Instant::now() < end && !stop.load(Ordering::Relaxed) {
                looks.look(background);
                std::thread::sleep(LOOK);
            }
            looks.look(background);
            let (span_s, units_per_s) = looks.between(looks.span_ns());
            return Ok(Turn {
                round,
                preset,
                subject,
                played: None,
                span_s,
                units_per_s,
                cached_bytes: None,
            });
        };
        let clip = clips.files.iter().find(|(of, _)| *of == preset).map(|(_, file)| file);
        let clip = clip.ok_or_else(|| Error::Child { what: "lacks its clip".into() })?;
        if rung.reads_disk() {
            chill(clip, &self.folder)?;
        }
        let cached_bytes =
            evermap_observe::residency(clip.as_fd()).map(|found| found.resident_bytes);
        let play = Play {
            clip: own_path(clip),
            frame_bytes: preset.frame_bytes,
            periods: self.periods(&preset),
            decode_us: preset.decode_us,
            is_verified: true,
            is_direct: rung.is_direct(),
        };
        let policy = Box::new(rung.policy(preset, subject.inject_ns_per_4k));
        let role = Role::Play { policy, play, state: self.state.clone() };
        let (played, looks) = self.played(role, background, stop)?;
        let (span_s, units_per_s) = looks.between(played.span_ns);
        Ok(Turn { round, preset, subject, played: Some(played), span_s, units_per_s, cached_bytes })
    }

    fn played(
        &self,
        role: Role,
        background: &Background,
        stop: &AtomicBool,
    ) -> Result<(Played, Looks)> {
        let wrong = |what: String| Error::Child { what };
        let mut player = Kept::start(&self.launcher, role)?;
        let mut stdout = player
            .child
            .stdout
            .take()
            .ok_or_else(|| wrong("of the player has no stdout".into()))?;
        // It says more than a pipe holds.
        let listener = std::thread::spawn(move || {
            let mut said = Vec::new();
            stdout.read_to_end(&mut said).map(|_| said)
        });
        let mut looks = Looks::default();
        let end = Instant::now() + self.turn * 3 + PATIENCE;
        let status = loop {
            looks.look(background);
            match player.child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() > end => {
                    return Err(wrong("of the player does not end".into()));
                }
                Ok(None) if stop.load(Ordering::Relaxed) => {
                    return Err(wrong("of the player was told to end".into()));
                }
                Ok(None) => std::thread::sleep(LOOK),
                Err(error) => return Err(wrong(format!("cannot be waited for ({error})"))),
            }
        };
        looks.look(background);
        let said = listener.join().ok().and_then(|said| said.ok()).unwrap_or_default();
        if !status.success() {
            return Err(wrong(format!("of the player failed ({status})")));
        }
        let mut played: Played = serde_json::from_slice(&said).map_err(|error| {
            wrong(format!("of the player said what nobody understands ({error})"))
        })?;
        played.report.set_timed(played.timed.clone());
        Ok((played, looks))
    }
}

/// Has nothing of the clip in the cache.
fn chill(clip: &File, folder: &Path) -> Result<()> {
    let failed = |source| Error::Io { operation: "flush the clip in", path: folder.into(), source };
    clip.sync_data().map_err(failed)?;
    rustix::fs::fadvise(clip, 0, None, rustix::fs::Advice::DontNeed)
        .map_err(|error| failed(error.into()))
}

/// The load's units, by the clock.
#[derive(Default)]
struct Looks(Vec<(u64, Units)>);

impl Looks {
    fn look(&mut self, background: &Background) {
        self.0.push((moment_ns(ClockId::Monotonic), background.units()));
    }

    fn span_ns(&self) -> (u64, u64) {
        let at = |look: Option<&(u64, Units)>| look.map_or(0, |look| look.0);
        (at(self.0.first()), at(self.0.last()))
    }

    /// Seconds, and units each second, between two moments: between looks, in proportion.
    fn between(&self, (from_ns, to_ns): (u64, u64)) -> (f64, Units) {
        let span_s = to_ns.saturating_sub(from_ns) as f64 / 1e9;
        if span_s <= 0.0 {
            return (0.0, Units::default());
        }
        let (from, to) = (self.at(from_ns), self.at(to_ns));
        let units = Units {
            computed: (to.computed - from.computed) / span_s,
            written: (to.written - from.written) / span_s,
        };
        (span_s, units)
    }

    fn at(&self, moment_ns: u64) -> Units {
        let after = self.0.partition_point(|look| look.0 <= moment_ns);
        let (Some(before), Some(next)) =
            (after.checked_sub(1).and_then(|at| self.0.get(at)), self.0.get(after))
        else {
            let edge = if after == 0 { self.0.first() } else { self.0.last() };
            return edge.map_or(Units::default(), |look| look.1);
        };
        let share = (moment_ns - before.0) as f64 / (next.0 - before.0).max(1) as f64;
        let mid = |before: f64, next: f64| before + (next - before) * share;
        Units {
            computed: mid(before.1.computed, next.1.computed),
            written: mid(before.1.written, next.1.written),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ladder(rounds: usize, seed: u64) -> Ladder {
        Ladder {
            launcher: Launcher { program: "/bin/false".into(), arguments: Vec::new() },
            rungs: vec![Rung::OrdinaryBlocking, Rung::LendMap],
            presets: vec![Preset::of_rate(24), Preset::of_rate(1_000)],
            inject_ns_per_4k: vec![0, 1_000],
            turn: Duration::from_millis(100),
            rounds,
            load: Load::default(),
            folder: std::env::temp_dir(),
            state: None,
            seed,
        }
    }

    #[test]
    fn every_round_has_all_and_every_second_one_is_the_one_before_backwards() {
        let order = ladder(4, 7).order();
        assert_eq!(order.len(), 4 * 2 * 4, "alone, two rungs and one that is injected");
        let rounds: Vec<_> = order.chunks(8).collect();
        let names = |round: &[(usize, Preset, Subject)]| -> Vec<String> {
            round
                .iter()
                .map(|(_, preset, subject)| format!("{}@{}", subject.name(), preset.fps))
                .collect()
        };
        let mut backwards = names(rounds[1]);
        backwards.reverse();
        assert_eq!(names(rounds[0]), backwards);
        let sorted = |round| {
            let mut names = names(round);
            names.sort();
            names
        };
        assert_eq!(sorted(rounds[0]), sorted(rounds[2]));
        assert!(sorted(rounds[0]).contains(&"lend-map+1us@1000".to_string()));
        assert_eq!(names(&ladder(4, 7).order()), names(&order), "the same seed, the same order");
        assert_ne!(names(&ladder(4, 8).order()), names(&order));
    }

    #[test]
    fn units_are_counted_between_the_moments_that_were_played() {
        let units = |computed| Units { computed, written: computed * 2.0 };
        let looks = Looks(vec![
            (0, units(0.0)),
            (1_000_000_000, units(10.0)),
            (3_000_000_000, units(30.0)),
        ]);
        let (span_s, per_s) = looks.between((500_000_000, 2_500_000_000));
        assert_eq!((span_s, per_s.computed, per_s.written), (2.0, 10.0, 20.0));
        assert_eq!(looks.between((5, 5)).0, 0.0);
        assert_eq!(Looks::default().between((1, 2)).1, Units::default());
    }

    #[test]
    fn a_player_that_cannot_be_is_an_error_and_leaves_nothing() {
        let mut ladder = ladder(1, 1);
        ladder.presets.truncate(1);
        let error = ladder.run(|_, _, _, _| {}).unwrap_err();
        assert!(matches!(error, Error::Child { .. } | Error::Io { .. }), "{error}");
        ladder.turn = Duration::MAX;
        assert!(matches!(ladder.run(|_, _, _, _| {}), Err(Error::Unusable(_))));
        ladder.turn = Duration::from_millis(100);
        ladder.rungs.clear();
        assert!(matches!(ladder.run(|_, _, _, _| {}), Err(Error::Unusable(_))));
    }
}
