//! Resource usage of this process.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Processor time, page faults and context switches between two points in time. Counts all threads
/// of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Usage {
    /// Elapsed time, in seconds.
    pub wall_s: f64,
    /// Processor time in user mode, in seconds.
    pub user_s: f64,
    /// Processor time in the kernel, in seconds. Excludes work done by kernel threads, such as
    /// write-back.
    pub system_s: f64,
    /// Page faults served without disk I/O.
    pub minor_faults: u64,
    /// Page faults that required disk I/O.
    pub major_faults: u64,
    /// Context switches because a thread waited.
    pub voluntary_switches: u64,
    /// Context switches because the scheduler preempted a thread.
    pub involuntary_switches: u64,
}

/// Starting point of a usage measurement.
///
/// ```
/// use evermap_observe::Moment;
/// let begin = Moment::now();
/// let used = begin.since();
/// println!("{} s of the processor in {} s", used.processor_s(), used.wall_s);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    at: Instant,
    usage: Usage,
}

impl Moment {
    /// Records the current time and usage. Costs one system call.
    pub fn now() -> Moment {
        let usage = Usage::of_process();
        Moment { at: Instant::now(), usage }
    }

    /// Returns the resources used since this point.
    pub fn since(&self) -> Usage {
        let wall_s = self.at.elapsed().as_secs_f64();
        let (now, then) = (Usage::of_process(), &self.usage);
        Usage {
            wall_s,
            user_s: now.user_s - then.user_s,
            system_s: now.system_s - then.system_s,
            minor_faults: now.minor_faults - then.minor_faults,
            major_faults: now.major_faults - then.major_faults,
            voluntary_switches: now.voluntary_switches - then.voluntary_switches,
            involuntary_switches: now.involuntary_switches - then.involuntary_switches,
        }
    }
}

impl Usage {
    /// Returns the resources used since the process started. `wall_s` is 0.
    fn of_process() -> Usage {
        let Some(usage) = crate::sys::rusage::of_process() else { return Usage::default() };
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
        Usage {
            wall_s: 0.0,
            user_s: seconds(usage.ru_utime),
            system_s: seconds(usage.ru_stime),
            minor_faults: usage.ru_minflt as u64,
            major_faults: usage.ru_majflt as u64,
            voluntary_switches: usage.ru_nvcsw as u64,
            involuntary_switches: usage.ru_nivcsw as u64,
        }
    }

    /// Returns user and system time together, in seconds.
    pub fn processor_s(&self) -> f64 {
        self.user_s + self.system_s
    }
}

/// Returns the processor time of this process so far. Unlike wall time, other programs do not
/// disturb it, so it suits comparisons of short runs.
///
/// ```
/// let begin = evermap_observe::processor_time();
/// assert!(evermap_observe::processor_time() >= begin);
/// ```
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
