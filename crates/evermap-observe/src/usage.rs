//! What the kernel says that this process has used.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Processor time, faults and switches between two moments. They are the process's: what other threads did meanwhile is
/// in them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Usage {
    /// Time that passed, in seconds.
    pub wall_s: f64,
    /// Processor time in user mode, in seconds.
    pub user_s: f64,
    /// Processor time in the kernel, in seconds. Work that the kernel does in threads of its own, as write-back, is not in it.
    pub system_s: f64,
    /// Page faults that needed no disk.
    pub minor_faults: u64,
    /// Page faults that did.
    pub major_faults: u64,
    /// Switches because a thread waited.
    pub voluntary_switches: u64,
    /// Switches because another was let on.
    pub involuntary_switches: u64,
}

/// A moment, to measure from.
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
    /// This one. Costs one system call.
    pub fn now() -> Moment {
        let usage = crate::sys::rusage::of_process();
        Moment { at: Instant::now(), usage }
    }

    /// What has been used since.
    pub fn since(&self) -> Usage {
        let wall_s = self.at.elapsed().as_secs_f64();
        let (now, then) = (crate::sys::rusage::of_process(), &self.usage);
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
    /// Processor time, in seconds.
    pub fn processor_s(&self) -> f64 {
        self.user_s + self.system_s
    }
}

/// The processor time of this process so far: what short races are judged by, as other programs don't disturb it.
///
/// ```
/// let begin = evermap_observe::processor_time();
/// assert!(evermap_observe::processor_time() >= begin);
/// ```
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
