//! Player: each period it reads a frame, verifies it, decodes for a given processor time, and
//! sleeps.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::clip::is_frame;
use crate::guard::StateDirectory;
use crate::{Access, FrameTimes, Lane, Policy, Report, Result};

/// Rate, frame size and work of a kind of program.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Preset {
    /// Frames a second.
    pub fps: u32,
    /// Bytes of each frame.
    pub frame_bytes: usize,
    /// Processor time of each frame in addition to reading and verifying.
    pub decode_us: u64,
}

/// Presets for films, games and control: 24 frames a second of 128 KiB and 10.5 ms, 60 of 128 KiB
/// and 4 ms, 1,000 of 16 KiB and 0.25 ms.
pub const PRESETS: [Preset; 3] = [
    Preset { fps: 24, frame_bytes: 128 << 10, decode_us: 10_500 },
    Preset { fps: 60, frame_bytes: 128 << 10, decode_us: 4_000 },
    Preset { fps: 1_000, frame_bytes: 16 << 10, decode_us: 250 },
];

impl Preset {
    /// Preset of this rate. Other rates get 128 KiB and work for a quarter of the period.
    pub fn of_rate(fps: u32) -> Self {
        let own = PRESETS.into_iter().find(|preset| preset.fps == fps);
        own.unwrap_or(Self {
            fps,
            frame_bytes: 128 << 10,
            decode_us: 250_000 / u64::from(fps.max(1)),
        })
    }
}

/// Settings of a player.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Play {
    /// Clip with consecutive frames of `frame_bytes`, played repeatedly.
    pub clip: PathBuf,
    /// Bytes of a frame.
    pub frame_bytes: usize,
    /// Number of periods.
    pub periods: u64,
    /// Processor time of each frame.
    pub decode_us: u64,
    /// Verifies frames, which must come from a [`super::Clip`].
    pub is_verified: bool,
    /// Mode `blocking`: uses direct reads.
    pub is_direct: bool,
}

/// Result of a player.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Played {
    /// Report of the lane.
    pub report: Report,
    /// Times of single frames.
    pub timed: Vec<FrameTimes>,
    /// Number of frames with wrong contents.
    pub damaged: u64,
    /// Beginning of the first period and end of the last frame, by `CLOCK_MONOTONIC`.
    pub span_ns: (u64, u64),
}

/// Plays in the calling thread, in the lane of the policy. Takes as long as its periods.
///
/// # Errors
/// Same errors as [`Lane::enter`], [`Lane::open`] and [`crate::Frame::read`].
pub fn play(policy: &Policy, play: &Play, state: Option<&Path>) -> Result<Played> {
    play_until(policy, play, state, &AtomicBool::new(false))
}

/// Like [`play`]; setting `stop` ends it after the present frame, with the result so far. Periods
/// after the last one to be played are not counted.
///
/// # Errors
/// Same errors as [`play`].
pub fn play_until(
    policy: &Policy,
    play: &Play,
    state: Option<&Path>,
    stop: &AtomicBool,
) -> Result<Played> {
    let mut lane = match state {
        Some(state) => Lane::enter_in(policy, &StateDirectory::at(state)?)?,
        None => Lane::enter(policy)?,
    };
    let access =
        Access::default().looping(true).bytes_per_frame(play.frame_bytes).direct(play.is_direct);
    let mut clip = lane.open_with(&play.clip, &access)?;
    let frames_there = (clip.length_bytes() / play.frame_bytes.max(1) as u64).max(1);
    let mut damaged = 0;
    let mut span_ns: Option<(u64, u64)> = None;
    while let Some(frame) = lane.frame()? {
        if frame.period() >= play.periods || stop.load(Ordering::Relaxed) {
            // The frame that shows the end of the playing time is not counted.
            frame.discard();
            break;
        }
        // After drops the player continues with the frame that is due now.
        let number = frame.period() % frames_there;
        let begin_ns = moment_ns(ClockId::Monotonic).saturating_sub(frame.wake_up_ns());
        let bytes = frame.read_at(&mut clip, number * play.frame_bytes as u64, play.frame_bytes)?;
        if play.is_verified && !is_frame(bytes, number) {
            damaged += 1;
        }
        decode(bytes, play.decode_us);
        frame.end();
        let first_ns = span_ns.map_or(begin_ns, |(first_ns, _)| first_ns);
        span_ns = Some((first_ns, moment_ns(ClockId::Monotonic)));
    }
    // Leaves first, so that closing the clip is not counted.
    let mut report = lane.leave();
    drop(clip);
    // A last frame that is late drops periods that were not to be played.
    let beyond = report.periods.saturating_sub(play.periods);
    report.periods -= beyond;
    report.drops = report.drops.saturating_sub(beyond);
    let timed = report.frame_times().to_vec();
    Ok(Played { report, timed, damaged, span_ns: span_ns.unwrap_or_default() })
}

/// Reads the bytes until the thread has run for this processor time.
fn decode(bytes: &[u8], decode_us: u64) {
    let until_ns =
        moment_ns(ClockId::ThreadCPUTime).saturating_add(decode_us.saturating_mul(1_000));
    let mut sum = 0_u64;
    let mut pieces = bytes.chunks(4_096).cycle();
    loop {
        let piece = pieces.next().unwrap_or_default();
        sum = piece.iter().fold(sum, |sum, byte| sum.rotate_left(1) ^ u64::from(*byte));
        std::hint::black_box(sum);
        if moment_ns(ClockId::ThreadCPUTime) >= until_ns {
            return;
        }
    }
}

pub(super) fn moment_ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::super::Clip;
    use super::*;

    #[test]
    fn periods_after_the_last_one_are_not_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("clip");
        Clip { frames: 2, frame_bytes: 64 }.make(&path).unwrap();
        let policy = Policy::parse(
            "[app]\nfps = 100\nshare = \"off\"\nscheduler = \"other\"\n[io]\nlock_memory = false",
        );
        // The first of two frames takes longer than four periods.
        let late = Play {
            clip: path,
            frame_bytes: 64,
            periods: 2,
            decode_us: 45_000,
            is_verified: true,
            is_direct: false,
        };
        let Played { report, damaged, .. } = play(&policy.unwrap(), &late, None).unwrap();
        let counts = (report.periods, report.frames, report.misses, report.drops, damaged);
        assert_eq!(counts, (2, 1, 1, 1, 0), "{report}");
    }
}
