//! Runs rungs in turns under the same load, so that drifts of the machine affect all of them.
//!
//! Each round contains every rung and the load alone, in an order shuffled by the seed; every
//! second round reverses the one before (ABBA). Each player is a separate process. The clips are
//! unnamed files, so nothing remains in any case.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::time::ClockId;

use super::background::{Background, ChildGuard, Load, Units, own_path};
use super::child::{Launcher, Role};
use super::clip::Clip;
use super::player::{Play, Played, Preset, moment_ns};
use super::results::Results;
use super::rung::{Rung, Subject, Turn};
use crate::{Error, Result};

/// Maximum size of a clip. Longer players repeat it.
const CLIP_BYTES_MAX: u64 = 256 << 20;
/// Time beyond its periods, for opening files, after which a player counts as hanging.
const HANG_TIMEOUT: Duration = Duration::from_secs(120);
/// Interval of reading the load's units.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);
/// Time for which the load runs before the first turn.
const WARM_UP: Duration = Duration::from_secs(1);
/// Maximum duration of a turn.
const TURN_MAX: Duration = Duration::from_secs(86_400);

/// Settings of a measurement.
#[derive(Clone, Debug)]
pub struct Ladder {
    /// Way to start children.
    pub launcher: Launcher,
    /// Rungs to measure.
    pub rungs: Vec<Rung>,
    /// Programs to measure.
    pub presets: Vec<Preset>,
    /// Additional latencies in ns per 4 KiB; `lend-map` is measured again with each.
    pub inject_ns_per_4k: Vec<u64>,
    /// Duration of each turn.
    pub turn: Duration,
    /// Turns of each rung.
    pub rounds: usize,
    /// Background load.
    pub load: Load,
    /// Directory of the clips and of the writers' files.
    pub folder: PathBuf,
    /// State directory of lanes. Default: the user's.
    pub state: Option<PathBuf>,
    /// Seed of the order.
    pub seed: u64,
}

struct Clips {
    files: Vec<(Preset, File)>,
}

impl Ladder {
    /// Measures `rounds * (rungs + 1) * presets` turns. Calls `on_turn` before each turn with its
    /// number and the total.
    ///
    /// # Errors
    /// [`Error::Child`] if a process failed; I/O errors. All children have ended then.
    pub fn run(&self, on_turn: impl FnMut(usize, usize, &Subject, &Preset)) -> Result<Results> {
        self.run_until(&AtomicBool::new(false), on_turn)
    }

    /// Like [`Ladder::run`]; setting `stop` ends it. The present turn is discarded, and the result
    /// contains the turns before it.
    ///
    /// # Errors
    /// Same errors as [`Ladder::run`].
    pub fn run_until(
        &self,
        stop: &AtomicBool,
        on_turn: impl FnMut(usize, usize, &Subject, &Preset),
    ) -> Result<Results> {
        if self.presets.is_empty() || self.rungs.is_empty() || self.rounds == 0 {
            return Err(Error::InvalidPolicy(
                "nothing to measure: give at least one rung, one rate and one round".into(),
            ));
        }
        if self.turn > TURN_MAX {
            return Err(Error::InvalidPolicy("a turn may last a day at most".into()));
        }
        let order = self.order();
        let mut turns = Vec::new();
        match self.run_turns(&order, stop, on_turn, &mut turns) {
            // The signal that ends this process may have ended its children, which is not their
            // failure.
            Err(error) if !stop.load(Ordering::Relaxed) => Err(error),
            _ => Ok(Results::of(self.load.clone(), self.seed, order.len(), turns)),
        }
    }

    /// Runs the turns until all are done or `stop` is set.
    fn run_turns(
        &self,
        order: &[(usize, Preset, Subject)],
        stop: &AtomicBool,
        mut on_turn: impl FnMut(usize, usize, &Subject, &Preset),
        turns: &mut Vec<Turn>,
    ) -> Result<()> {
        let clips = self.clips()?;
        let mut background = Background::start(&self.launcher, &self.load, &self.folder)?;
        std::thread::sleep(WARM_UP);
        for (at, (round, preset, subject)) in order.iter().enumerate() {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            on_turn(at + 1, order.len(), subject, preset);
            background.verify()?;
            let turn = self.turn(*round, *preset, *subject, &clips, &background, stop)?;
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            turns.push(turn);
        }
        background.verify()
    }

    /// Order of the turns.
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
        let mut random = fastrand::Rng::with_seed(self.seed);
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
            Ok((*preset, clip.unnamed(&self.folder)?))
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
            let mut samples = UnitSamples::default();
            let end = Instant::now() + self.turn;
            while Instant::now() < end && !stop.load(Ordering::Relaxed) {
                samples.sample(background);
                std::thread::sleep(SAMPLE_INTERVAL);
            }
            samples.sample(background);
            let (span_s, units_per_s) = samples.between(samples.span_ns());
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
        let clip = clip.ok_or_else(|| Error::Child { what: "has no clip".into() })?;
        if rung.reads_disk() {
            drop_from_cache(clip, &self.folder)?;
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
        let (played, samples) = self.played(role, background, stop)?;
        let (span_s, units_per_s) = samples.between(played.span_ns);
        Ok(Turn { round, preset, subject, played: Some(played), span_s, units_per_s, cached_bytes })
    }

    fn played(
        &self,
        role: Role,
        background: &Background,
        stop: &AtomicBool,
    ) -> Result<(Played, UnitSamples)> {
        let wrong = |what: String| Error::Child { what };
        let mut player = ChildGuard::start(&self.launcher, role)?;
        let mut stdout = player
            .child
            .stdout
            .take()
            .ok_or_else(|| wrong("of the player has no stdout".into()))?;
        // A thread reads the output, which exceeds a pipe's buffer.
        let read = move || {
            let mut said = Vec::new();
            stdout.read_to_end(&mut said).map(|_| said)
        };
        let path = "a thread that reads the player's output".into();
        let listener = std::thread::Builder::new().spawn(read).map_err(|source| Error::Io {
            operation: "start",
            path,
            source,
        })?;
        let mut samples = UnitSamples::default();
        let end = Instant::now() + self.turn * 3 + HANG_TIMEOUT;
        let status = loop {
            samples.sample(background);
            match player.child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() > end => {
                    return Err(wrong("of the player does not end".into()));
                }
                Ok(None) if stop.load(Ordering::Relaxed) => {
                    return Err(wrong("of the player was told to end".into()));
                }
                Ok(None) => std::thread::sleep(SAMPLE_INTERVAL),
                Err(error) => return Err(wrong(format!("cannot be waited for ({error})"))),
            }
        };
        samples.sample(background);
        let said = listener.join().ok().and_then(|said| said.ok()).unwrap_or_default();
        if !status.success() {
            return Err(wrong(format!("of the player failed ({status})")));
        }
        let mut played: Played = serde_json::from_slice(&said)
            .map_err(|error| wrong(format!("of the player printed an invalid result ({error})")))?;
        played.report.set_frame_times(played.timed.clone());
        Ok((played, samples))
    }
}

/// Removes the clip from the page cache.
fn drop_from_cache(clip: &File, folder: &Path) -> Result<()> {
    let failed = |source| Error::Io { operation: "flush the clip in", path: folder.into(), source };
    clip.sync_data().map_err(failed)?;
    rustix::fs::fadvise(clip, 0, None, rustix::fs::Advice::DontNeed)
        .map_err(|error| failed(error.into()))
}

/// Samples of the load's units over time.
#[derive(Default)]
struct UnitSamples(Vec<(u64, Units)>);

impl UnitSamples {
    fn sample(&mut self, background: &Background) {
        self.0.push((moment_ns(ClockId::Monotonic), background.units()));
    }

    fn span_ns(&self) -> (u64, u64) {
        let at = |look: Option<&(u64, Units)>| look.map_or(0, |look| look.0);
        (at(self.0.first()), at(self.0.last()))
    }

    /// Seconds and units per second between two moments, interpolated between samples.
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
    fn every_round_is_complete_and_every_second_one_reversed() {
        let order = ladder(4, 7).order();
        assert_eq!(order.len(), 4 * 2 * 4, "alone, two rungs and one with additional latency");
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
        assert_eq!(names(&ladder(4, 7).order()), names(&order), "the seed determines the order");
        assert_ne!(names(&ladder(4, 8).order()), names(&order));
    }

    #[test]
    fn units_are_interpolated_between_samples() {
        let units = |computed| Units { computed, written: computed * 2.0 };
        let samples = UnitSamples(vec![
            (0, units(0.0)),
            (1_000_000_000, units(10.0)),
            (3_000_000_000, units(30.0)),
        ]);
        let (span_s, per_s) = samples.between((500_000_000, 2_500_000_000));
        assert_eq!((span_s, per_s.computed, per_s.written), (2.0, 10.0, 20.0));
        assert_eq!(samples.between((5, 5)).0, 0.0);
        assert_eq!(UnitSamples::default().between((1, 2)).1, Units::default());
    }

    #[test]
    fn invalid_settings_and_players_are_errors() {
        let mut ladder = ladder(1, 1);
        ladder.presets.truncate(1);
        let error = ladder.run(|_, _, _, _| {}).unwrap_err();
        assert!(matches!(error, Error::Child { .. } | Error::Io { .. }), "{error}");
        ladder.turn = Duration::MAX;
        assert!(matches!(ladder.run(|_, _, _, _| {}), Err(Error::InvalidPolicy(_))));
        ladder.turn = Duration::from_millis(100);
        ladder.rungs.clear();
        assert!(matches!(ladder.run(|_, _, _, _| {}), Err(Error::InvalidPolicy(_))));
    }
}
