//! Report of a lane: misses, times, costs, and the parts of the policy that were applied or not.
//!
//! Made once, when a lane is left. Only [`samples::Samples::push`] runs within a frame.

pub(crate) mod drawing;
pub(crate) mod samples;
mod text;

use serde::{Deserialize, Serialize};

use self::samples::{Sample, Samples};
use crate::counters::Counters;
use crate::{Applied, Note, Period, Quantiles, Reads};

/// Results of a lane. All times are in milliseconds.
///
/// A frame's completion is the time from its period's beginning to the frame's end: wake-up (until
/// the program runs), I/O (in reads) and compute (the rest). A completion beyond the deadline is a
/// miss. A period that has passed entirely before the program asks for it is a drop.
///
/// The JSON form contains everything except the single frames ([`Report::frame_times`]).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Report {
    /// Period.
    pub period_ms: f64,
    /// Deadline after the period's beginning.
    pub deadline_ms: f64,
    /// Periods that began: frames and drops.
    pub periods: u64,
    /// Periods in which the program worked.
    pub frames: u64,
    /// Frames beyond their deadline, without drops.
    pub misses: u64,
    /// Periods that passed entirely before the program asked for them.
    pub drops: u64,
    /// Time from the period's beginning to the frame's end.
    pub completion_ms: Quantiles,
    /// Time from the period's beginning until the program ran.
    pub wake_up_ms: Quantiles,
    /// Time in reads.
    pub io_ms: Quantiles,
    /// Rest of the completion.
    pub compute_ms: Quantiles,
    /// Frames behind the quantiles: all frames, or a uniform random sample of this size. The maxima
    /// cover all frames.
    pub sampled: u64,
    /// Processor time of the thread since its first frame. Excludes entering, opening files and the
    /// lane's other threads.
    pub processor_ms: f64,
    /// Time that the thread waited in the run queue. `None` if the kernel does not count it.
    pub run_queue_ms: Option<f64>,
    /// Page faults of the thread that needed no disk.
    pub minor_faults: u64,
    /// Page faults of the thread that waited for a disk.
    pub major_faults: u64,
    /// Number of times that the thread slept.
    pub voluntary_switches: u64,
    /// Number of times that the thread was preempted.
    pub involuntary_switches: u64,
    /// Core of the lane, or `None`.
    pub core: Option<u32>,
    /// Interrupts that the core served during the frames, including its own timer's.
    pub interrupts: Option<u64>,
    /// Time in which the core was ready to run but the host of this virtual machine ran others, in
    /// steps of 10 ms. No lane prevents this. `None` if the kernel does not report it.
    pub stolen_ms: Option<f64>,
    /// Reads by the way they were served.
    pub reads: Reads,
    /// Parts of the policy that were applied.
    pub applied: Vec<Applied>,
    /// Parts of the policy that were not applied, with the cause.
    pub not_applied: Vec<Note>,
    /// Times when the program lost its priority.
    pub demotions: Vec<Demotion>,
    #[serde(skip)]
    timed: Vec<FrameTimes>,
}

/// Times of one frame in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FrameTimes {
    /// Number of the frame's period, from 0.
    pub period: u64,
    /// Time from the period's beginning until the program ran.
    pub wake_up_ms: f64,
    /// Time in reads.
    pub io_ms: f64,
    /// Time from the period's beginning to the frame's end.
    pub completion_ms: f64,
}

impl FrameTimes {
    fn of(sample: &Sample) -> Self {
        Self {
            period: sample.period,
            wake_up_ms: ms(sample.wake_up_ns),
            io_ms: ms(sample.io_ns),
            completion_ms: ms(sample.completion_ns),
        }
    }
}

/// Loss of a program's priority.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Demotion {
    /// Cause.
    pub cause: Cause,
    /// Time since the lane was entered.
    pub after_ms: f64,
    /// Time that the program had run without sleeping.
    pub ran_ms: f64,
    /// Time that it is allowed to run without sleeping.
    pub allowed_ms: f64,
}

/// Cause of a demotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Cause {
    /// The program ran longer without sleeping than `max_overrun` allows.
    #[serde(rename = "ran")]
    Overrun,
    /// The lane's time (`max_time_s`) ended before the program left the lane.
    TimeOver,
}

/// Frame counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) frames: u64,
    pub(crate) misses: u64,
    pub(crate) drops: u64,
}

impl Report {
    pub(crate) fn of(period: Period, deadline_ns: u64, counts: Counts, samples: &Samples) -> Self {
        let kept = samples.kept();
        let largest_ns = samples.largest_ns();
        let of = |time: fn(&Sample) -> u64, largest_ns: u64| {
            let times: Vec<u64> = kept.iter().map(time).collect();
            let mut quantiles = Quantiles::of_ns_in_ms(&times);
            quantiles.max = ms(largest_ns);
            quantiles
        };
        Self {
            period_ms: 1e3 / period.rate_hz(),
            deadline_ms: ms(deadline_ns),
            periods: counts.frames + counts.drops,
            frames: counts.frames,
            misses: counts.misses,
            drops: counts.drops,
            wake_up_ms: of(|sample| sample.wake_up_ns, largest_ns[0]),
            io_ms: of(|sample| sample.io_ns, largest_ns[1]),
            compute_ms: of(Sample::compute_ns, largest_ns[2]),
            completion_ms: of(|sample| sample.completion_ns, largest_ns[3]),
            sampled: kept.len() as u64,
            timed: kept.iter().map(FrameTimes::of).collect(),
            ..Self::default()
        }
    }

    pub(crate) fn with_costs(mut self, core: Option<u32>, costs: Counters) -> Self {
        self.processor_ms = ms(costs.processor_ns);
        self.run_queue_ms = costs.run_queue_ns.map(ms);
        self.minor_faults = costs.minor_faults;
        self.major_faults = costs.major_faults;
        self.voluntary_switches = costs.voluntary_switches;
        self.involuntary_switches = costs.involuntary_switches;
        (self.core, self.interrupts) = (core, costs.core.interrupts);
        self.stolen_ms = costs.core.stolen_ns.map(ms);
        self
    }

    /// Share of periods with a miss or a drop, 0 to 1. Returns 0 without periods.
    pub fn missed_share(&self) -> f64 {
        (self.misses + self.drops) as f64 / self.periods.max(1) as f64
    }

    /// Sampled frames, by period.
    pub fn frame_times(&self) -> &[FrameTimes] {
        &self.timed
    }

    /// Sets the sampled frames of a report that was read from JSON, which does not contain them.
    pub fn set_frame_times(&mut self, timed: Vec<FrameTimes>) {
        self.timed = timed;
    }
}

pub(crate) fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}
