//! What a lane came to: misses, where the time went, what it cost, what was had of the policy and what was not.
//!
//! Made once, when a lane is left; nothing here runs within a frame but [`samples::Samples::push`].

#[cfg(feature = "plots")]
pub(crate) mod drawing;
pub(crate) mod samples;
mod text;

use serde::{Deserialize, Serialize};

use self::samples::{Sample, Samples};
use crate::counters::Counters;
use crate::{Note, Period, Quantiles, Reads};

/// What a lane came to. All times are milliseconds.
///
/// A frame's completion is the time from its period's beginning to its end: wake-up (until the program runs), I/O (in reads) and compute (the rest). It is a
/// miss beyond the deadline. A drop is a period that had passed wholly before the program came to it.
///
/// JSON has it all, but for the single frames ([`Report::timed`]).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Report {
    /// From one period to the next.
    pub period_ms: f64,
    /// From a period's beginning until its frame has to be done.
    pub deadline_ms: f64,
    /// Those that began: frames and drops.
    pub periods: u64,
    /// Those that the program worked in.
    pub frames: u64,
    /// Frames beyond their deadline. Drops are not among them.
    pub misses: u64,
    /// Periods that passed wholly before the program came to them.
    pub drops: u64,
    /// From the period's beginning to the frame's end.
    pub completion_ms: Quantiles,
    /// From the period's beginning until the program ran.
    pub wake_up_ms: Quantiles,
    /// In reads.
    pub io_ms: Quantiles,
    /// The rest.
    pub compute_ms: Quantiles,
    /// Frames that the quantiles are of: all, or so many that were drawn from all with equal chances. The largest times are of all in any case.
    pub sampled: u64,
    /// Processor time of the thread from its first frame on. What entering and opening took, and what the lane's other threads take, is not in it.
    pub processor_ms: f64,
    /// The time that the thread could have run and did not; none where the kernel does not count it.
    pub run_queue_ms: Option<f64>,
    /// Faults of the thread that needed no disk.
    pub minor_faults: u64,
    /// Faults of the thread that did.
    pub major_faults: u64,
    /// How often the thread slept.
    pub voluntary_switches: u64,
    /// How often it was made to make room.
    pub involuntary_switches: u64,
    /// The lane's core; none if it had none of its own.
    pub core: Option<u32>,
    /// Interrupts that the core has served meanwhile, its own timer's too.
    pub interrupts: Option<u64>,
    /// The time for which the core could have run and the host of this virtual machine ran others, to 10 ms: no lane comes before those. None where the kernel does not tell.
    pub stolen_ms: Option<f64>,
    /// Reads by how they were served.
    pub reads: Reads,
    /// What was had of the policy, and why so.
    pub applied: Vec<String>,
    /// What was not, and why.
    pub not_applied: Vec<Note>,
    /// When the program lost its priority.
    pub demotions: Vec<Demotion>,
    #[serde(skip)]
    timed: Vec<Timed>,
}

/// One frame's times, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Timed {
    /// The number of its period, from 0.
    pub period: u64,
    /// From the period's beginning until the program ran.
    pub wake_up_ms: f64,
    /// In reads.
    pub io_ms: f64,
    /// From the period's beginning to the frame's end.
    pub completion_ms: f64,
}

impl Timed {
    fn of(sample: &Sample) -> Self {
        Self {
            period: sample.period,
            wake_up_ms: ms(sample.wake_up_ns),
            io_ms: ms(sample.io_ns),
            completion_ms: ms(sample.completion_ns),
        }
    }
}

/// A program lost its priority.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Demotion {
    /// What for.
    pub cause: Cause,
    /// Since the lane was entered.
    pub after_ms: f64,
    /// How long it had run without sleeping, of what it may.
    pub ran_ms: f64,
    /// What it may.
    pub allowed_ms: f64,
}

/// What a program loses its priority for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Cause {
    /// It ran for longer than it may without sleeping (`max_overrun`).
    Ran,
    /// The lane's time was over (`max_time_s`), and it was not left.
    TimeOver,
}

/// Frames as they were counted.
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
            timed: kept.iter().map(Timed::of).collect(),
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

    /// The share of periods that nobody saw in time: misses and drops, 0 to 1. 0 without periods.
    pub fn missed_share(&self) -> f64 {
        (self.misses + self.drops) as f64 / self.periods.max(1) as f64
    }

    /// The frames that were sampled, by period.
    pub fn timed(&self) -> &[Timed] {
        &self.timed
    }

    /// Gives them to a report that was read back, which has lost them.
    pub fn set_timed(&mut self, timed: Vec<Timed>) {
        self.timed = timed;
    }
}

pub(crate) fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}
