//! Times of a thread's wake-ups: from the kernel's records of context switches, or from frequent
//! reads of switch counts where records are not permitted.
//!
//! A record has the time when the thread began to run after a sleep. That includes the wait for a
//! core, which is part of the observed behaviour.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use evermap_observe::proc::field;
use evermap_observe::quantile;
use perf_event::events::Software;
use perf_event::{Builder, Clock, SampleFlag, Sampler};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::process::directory_of_thread;
use super::rhythm::{self, Rhythm};

/// Maximum number of times remembered for a thread. When it is reached, the older half is dropped;
/// a rhythm needs the last 1,024.
const TIMES_MAX: usize = 1 << 16;
/// Size of a thread's record ring: 2,000 records between two reads, which are 20 ms apart.
const RING_BYTES: usize = 32 << 10;
/// Record types and flags of their headers (include/uapi/linux/perf_event.h).
const RECORD_LOST: u32 = 2;
const RECORD_SWITCH: u32 = 14;
const MISC_SWITCH_OUT: u16 = 1 << 13;
const MISC_SWITCH_OUT_PREEMPT: u16 = 1 << 14;

/// Source of wake-up times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Source {
    /// The kernel's switch records, exact to the microsecond.
    SwitchRecords,
    /// The kernel's switch counts, read repeatedly.
    Polled {
        /// Median interval between reads, which limits the precision of all times.
        resolution_us: f64,
    },
}

/// Follows one thread.
pub(super) struct Follower {
    method: Method,
    times_ns: Vec<u64>,
    /// All wake-ups, including those without an individual time.
    count: u64,
    lost: u64,
}

enum Method {
    /// Switch records. The counts reveal records that are missing although the kernel did not
    /// report a loss.
    Records {
        sampler: Box<Sampler>,
        was_preempted: bool,
        status: File,
        before: u64,
    },
    Counts {
        status: File,
        last: u64,
        polls_ns: Vec<u64>,
    },
}

impl Follower {
    /// Begins to follow a thread. Returns the reason if it only reads counts, and `None` if the
    /// thread has ended.
    pub(super) fn of(process: u32, thread: u32, only_poll: bool) -> Option<(Self, Option<String>)> {
        let status = File::open(directory_of_thread(process, thread).join("status")).ok()?;
        let before = switches(&status)?;
        let counts = |status| Method::Counts { status, last: before, polls_ns: Vec::new() };
        let (method, why) = match (!only_poll).then(|| records(thread)) {
            Some(Ok(sampler)) => {
                let sampler = Box::new(sampler);
                (Method::Records { sampler, was_preempted: false, status, before }, None)
            }
            Some(Err(error)) => (counts(status), Some(why_counted(&error))),
            None => (counts(status), None),
        };
        Some((Follower { method, times_ns: Vec::new(), count: 0, lost: 0 }, why))
    }

    pub(super) fn is_polled(&self) -> bool {
        matches!(self.method, Method::Counts { .. })
    }

    /// Takes the wake-ups since the last call.
    pub(super) fn follow(&mut self) {
        match &mut self.method {
            Method::Records { sampler, was_preempted, .. } => {
                while let Some(record) = sampler.next_record() {
                    let body = record.to_contiguous();
                    match record.ty() {
                        RECORD_SWITCH if record.misc() & MISC_SWITCH_OUT != 0 => {
                            *was_preempted = record.misc() & MISC_SWITCH_OUT_PREEMPT != 0;
                        }
                        RECORD_SWITCH if !*was_preempted => {
                            self.count += 1;
                            match number_at(&body, 0) {
                                Some(time_ns) => remember(&mut self.times_ns, time_ns),
                                None => self.lost += 1,
                            }
                        }
                        // Half of the lost records were switches to sleep.
                        RECORD_LOST => self.lost += number_at(&body, 8).unwrap_or(0).div_ceil(2),
                        _ => {}
                    }
                }
            }
            Method::Counts { status, last, polls_ns } => {
                let Some(count) = switches(status) else { return };
                let now_ns = now_ns();
                remember(polls_ns, now_ns);
                let more = count.saturating_sub(*last);
                *last = count;
                self.count += more;
                if more > 0 {
                    remember(&mut self.times_ns, now_ns);
                    self.lost += more - 1;
                }
            }
        }
    }

    pub(super) fn source(&self) -> Source {
        match &self.method {
            Method::Records { .. } => Source::SwitchRecords,
            Method::Counts { polls_ns, .. } => {
                let mut apart: Vec<u64> = polls_ns.windows(2).map(|two| two[1] - two[0]).collect();
                apart.sort_unstable();
                let median_ns = quantile(&apart, 0.5).unwrap_or(0);
                Source::Polled { resolution_us: median_ns as f64 / 1e3 }
            }
        }
    }

    /// Takes the last wake-ups.
    pub(super) fn finish(&mut self) {
        self.follow();
        if let Method::Records { status, before, .. } = &self.method
            && let Some(now) = switches(status)
        {
            // The thread may be asleep at the beginning and at the end.
            let slept = now.saturating_sub(*before).saturating_sub(2);
            self.lost = self.lost.max(slept.saturating_sub(self.count));
            self.count = self.count.max(slept);
        }
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    pub(super) fn rhythm(&self) -> Rhythm {
        rhythm::of(&self.times_ns, self.count, self.lost)
    }
}

/// Adds a time. Drops the older half of too many.
fn remember(times_ns: &mut Vec<u64>, time_ns: u64) {
    if times_ns.len() == TIMES_MAX {
        times_ns.drain(..TIMES_MAX / 2);
    }
    times_ns.push(time_ns);
}

/// Opens records of all switches of one thread, on any core. They exclude the kernel, so they need
/// no right beyond that over the thread.
fn records(thread: u32) -> io::Result<Sampler> {
    let mut builder = Builder::new(Software::DUMMY);
    builder
        .observe_pid(libc::pid_t::try_from(thread).map_err(|_| io::ErrorKind::NotFound)?)
        .any_cpu()
        .exclude_kernel(true)
        .exclude_hv(true)
        .context_switch(true)
        .sample_id_all(true)
        .sample(SampleFlag::TIME)
        .clockid(Clock::MONOTONIC);
    let mut sampler = builder.build()?.sampled(RING_BYTES)?;
    sampler.enable()?;
    Ok(sampler)
}

/// Number of times that the thread went to sleep.
fn switches(status: &File) -> Option<u64> {
    let mut bytes = [0; 4096];
    let length = status.read_at(&mut bytes, 0).ok()?;
    let text = String::from_utf8_lossy(&bytes[..length]);
    field(&text, "voluntary_ctxt_switches")?.parse().ok()
}

fn why_counted(error: &io::Error) -> String {
    let setting = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    let setting = setting
        .map_or(String::new(), |level| format!("; kernel.perf_event_paranoid is {}", level.trim()));
    format!(
        "wake-ups are counted about every millisecond, since the kernel refused switch records ({error}{setting}): run as root or with CAP_PERFMON"
    )
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    (now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64)
}

fn number_at(body: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(body.get(offset..offset + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_wake_ups_of_an_hour_are_kept_and_have_a_rhythm() {
        let mut times_ns = Vec::new();
        let count = 3_600_000;
        (0..count).for_each(|n| remember(&mut times_ns, n * 1_000_000));
        assert!(times_ns.len() <= TIMES_MAX && times_ns.len() >= TIMES_MAX / 2);
        assert_eq!(times_ns.last(), Some(&((count - 1) * 1_000_000)));
        let found = rhythm::of(&times_ns, count, 0);
        assert_eq!(found.wake_ups as u64, count);
        assert!(found.is_periodic() && (found.interval_us - 1_000.0).abs() < 0.01, "{found:?}");
        assert!((found.period_us.unwrap() - 1_000.0).abs() < 1.0, "{found:?}");
        assert!((found.wake_ups_per_period.unwrap() - 1.0).abs() < 0.01, "{found:?}");
    }
}
