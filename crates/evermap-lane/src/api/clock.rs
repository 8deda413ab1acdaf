//! Clock of frames: the kernel's, or a simulated one in tests.

use rustix::io::Errno;
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

const NS_PER_S: u64 = 1_000_000_000;

/// Monotonic clock with an absolute sleep.
pub(crate) trait Clock {
    /// Nanoseconds since an arbitrary moment.
    fn now_ns(&self) -> u64;

    /// Sleeps until `moment_ns`. Returns at once if that has passed.
    fn sleep_until_ns(&self, moment_ns: u64);
}

/// `CLOCK_MONOTONIC`, which cannot be set.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Monotonic;

impl Clock for Monotonic {
    fn now_ns(&self) -> u64 {
        let now = clock_gettime(ClockId::Monotonic);
        now.tv_sec as u64 * NS_PER_S + now.tv_nsec as u64
    }

    fn sleep_until_ns(&self, moment_ns: u64) {
        let moment = Timespec {
            tv_sec: (moment_ns / NS_PER_S) as i64,
            tv_nsec: (moment_ns % NS_PER_S) as i64,
        };
        // The sleep is absolute, so interruptions do not delay its end.
        while clock_nanosleep_absolute(ClockId::Monotonic, &moment) == Err(Errno::INTR) {}
    }
}
