//! Model of one run: the completion time of each frame, and the use of the cores.
//!
//! A frame's completion is the sum of its decode time, its references, its reads, the device's
//! delays and, if it blocks, two context switches and a wait for the processor for each request.
//! Frames are independent: a late frame does not shorten the next one. A player drops a late frame
//! and begins the next one on time. With mean completions above a period, as published, a backlog
//! would grow without bound.

use evermap_trace::Quantiles;
use serde::Serialize;

use crate::device::Device;
use crate::mode::Mode;
use crate::parameters::Key;
use crate::profile::Profile;
use crate::random::{Purpose, Random};

/// One frame of a run, and the parts of its completion. Times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Frame {
    /// Page references.
    pub references: u32,
    /// References that missed the cache.
    pub misses: u32,
    /// Reads from the device.
    pub requests: u32,
    /// Processor time for decoding.
    pub decode_ms: f64,
    /// Time of the references themselves.
    pub cache_ms: f64,
    /// Time to read, without interference.
    pub io_ms: f64,
    /// Delays by garbage collection and stalls.
    pub delay_ms: f64,
    /// Context switches.
    pub switch_ms: f64,
    /// Waiting for the processor.
    pub wait_ms: f64,
    /// Sum of all parts.
    pub completion_ms: f64,
    /// True if the completion is later than the deadline.
    pub is_missed: bool,
}

/// Result of a run with all frames.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Run {
    /// Name of the profile.
    pub profile: String,
    /// Mode of the program.
    pub mode: Mode,
    /// Name of the device.
    pub device: String,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Time between the begins of two frames.
    pub period_ms: f64,
    /// Deadline of a frame, from its begin.
    pub deadline_ms: f64,
    /// Summary of all frames.
    pub summary: Summary,
    /// All frames, in order.
    pub frames: Vec<Frame>,
}

/// Summary of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// Number of frames.
    pub frames: usize,
    /// Number of frames that missed the deadline.
    pub missed: usize,
    /// Share of frames that missed the deadline.
    pub missed_percent: f64,
    /// Completion times.
    pub completion_ms: Quantiles,
    /// Mean completion relative to the deadline.
    pub completion_change_percent: f64,
    /// Mean completion of the frames that missed the deadline, relative to the deadline; 0 if none
    /// did.
    pub late_change_percent: f64,
    /// Mean time of reading per frame, with delays.
    pub io_ms_mean: f64,
    /// Mean time of context switches per frame.
    pub switch_ms_mean: f64,
    /// Mean wait for the processor per frame.
    pub wait_ms_mean: f64,
    /// Mean number of reads from the device per frame.
    pub requests_mean: f64,
    /// Read rate of the device.
    pub read_mib_per_s: f64,
    /// Share of the time of all cores that is not held idle for I/O. Context switches count as
    /// work.
    pub utilisation_percent: f64,
    /// Like the above, with context switches counted as overhead.
    pub utilisation_less_switches_percent: f64,
}

const PAGE_MIB: f64 = 4096.0 / (1024.0 * 1024.0);

/// Parameters of a profile that frames depend on.
pub(crate) struct Model<'a> {
    profile: &'a str,
    device: &'a Device,
    mode: Mode,
    seed: u64,
    period_ms: f64,
    deadline_ms: f64,
    hit_ms: f64,
    request_pages: u32,
    /// Two context switches, for each blocking request.
    switches_ms: f64,
    wait_ms: f64,
    cores: f64,
}

impl<'a> Model<'a> {
    pub(crate) fn new(profile: &'a Profile, device: &'a Device, mode: Mode, seed: u64) -> Self {
        let value = |key| profile.value(key);
        let period_ms = 1e3 / value(Key::Rate);
        Self {
            profile: profile.name(),
            device,
            mode,
            seed,
            period_ms,
            deadline_ms: period_ms * value(Key::Deadline) / 100.0,
            hit_ms: value(Key::Hit) / 1e3,
            request_pages: value(Key::RequestPages) as u32,
            switches_ms: 2.0 * value(Key::ContextSwitch) / 1e3,
            wait_ms: value(Key::Slice) * value(Key::Wait) / 100.0,
            cores: value(Key::Cores),
        }
    }

    fn frame(&self, index: usize, decode_ms: f64, references: u32, misses: u32) -> Frame {
        let requests = misses.div_ceil(self.request_pages);
        let cache_ms = f64::from(references) * self.hit_ms;
        let io_ms = self.device.read_ms(requests, misses);
        let delay_ms = self.delay_ms(index, requests, io_ms);
        let blocked = if self.mode == Mode::Blocking { f64::from(requests) } else { 0.0 };
        let switch_ms = blocked * self.switches_ms;
        let wait_ms = blocked * self.wait_ms;
        let completion_ms = decode_ms + cache_ms + io_ms + delay_ms + switch_ms + wait_ms;
        let is_missed = completion_ms > self.deadline_ms;
        Frame {
            references,
            misses,
            requests,
            decode_ms,
            cache_ms,
            io_ms,
            delay_ms,
            switch_ms,
            wait_ms,
            completion_ms,
            is_missed,
        }
    }

    fn delay_ms(&self, index: usize, requests: u32, io_ms: f64) -> f64 {
        if requests == 0 || self.device.is_steady() {
            return 0.0;
        }
        // Each frame has its own random stream, so that its number of requests does not affect
        // later frames.
        let mut random = Random::nth(self.seed, Purpose::Device, index as u64);
        self.device.collection_delay_ms(io_ms, &mut random)
            + self.device.stall_delay_ms(requests, &mut random)
    }

    /// Computes all frames. `misses` has one entry for each.
    pub(crate) fn frames(
        &self,
        decode_ms: &[f64],
        references: &[u32],
        misses: &[u32],
    ) -> Vec<Frame> {
        let demand = decode_ms.iter().zip(references).zip(misses).enumerate();
        demand
            .map(|(n, ((&decode_ms, &references), &misses))| {
                self.frame(n, decode_ms, references, misses)
            })
            .collect()
    }

    pub(crate) fn summary(&self, frames: &[Frame]) -> Summary {
        let count = frames.len().max(1) as f64;
        let sum = |part: &dyn Fn(&Frame) -> f64| frames.iter().map(part).sum::<f64>();
        let (period_ms, deadline_ms) = (self.period_ms, self.deadline_ms);
        let completions: Vec<f64> = frames.iter().map(|frame| frame.completion_ms).collect();
        let completion_ms = Quantiles::of(&completions);
        let missed = frames.iter().filter(|frame| frame.is_missed).count();
        let late_ms = sum(&|frame| if frame.is_missed { frame.completion_ms } else { 0.0 });
        let late_change =
            if missed == 0 { 0.0 } else { late_ms / missed as f64 / deadline_ms - 1.0 };
        let io_ms = sum(&|frame| frame.io_ms + frame.delay_ms);
        let switch_ms = sum(&|frame| frame.switch_ms);
        // A frame that takes longer than its period has the core for longer.
        let core_ms = sum(&|frame| frame.completion_ms.max(period_ms)) * self.cores;
        let held_ms = if self.mode == Mode::Nonblocking { io_ms } else { 0.0 };
        let pages = sum(&|frame| f64::from(frame.misses));
        Summary {
            frames: frames.len(),
            missed,
            missed_percent: 100.0 * missed as f64 / count,
            completion_ms,
            completion_change_percent: 100.0 * (completion_ms.mean / deadline_ms - 1.0),
            late_change_percent: 100.0 * late_change,
            io_ms_mean: io_ms / count,
            switch_ms_mean: switch_ms / count,
            wait_ms_mean: sum(&|frame| frame.wait_ms) / count,
            requests_mean: sum(&|frame| f64::from(frame.requests)) / count,
            read_mib_per_s: pages * PAGE_MIB / (count * period_ms / 1e3),
            utilisation_percent: 100.0 * (1.0 - held_ms / core_ms),
            utilisation_less_switches_percent: 100.0 * (1.0 - (held_ms + switch_ms) / core_ms),
        }
    }

    pub(crate) fn run(&self, device: &str, frames: Vec<Frame>) -> Run {
        Run {
            profile: self.profile.into(),
            mode: self.mode,
            device: device.into(),
            seed: self.seed,
            period_ms: self.period_ms,
            deadline_ms: self.deadline_ms,
            summary: self.summary(&frames),
            frames,
        }
    }
}
