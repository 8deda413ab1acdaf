//! Time, as frames see it: the kernel's, or for tests one that is set.

use rustix::io::Errno;
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

const NS_PER_S: u64 = 1_000_000_000;

/// A clock that goes on, and that can be slept by.
pub(crate) trait Clock {
    /// Since some moment.
    fn now_ns(&self) -> u64;

    /// Returns at once if that is over.
    fn sleep_until_ns(&self, moment_ns: u64);
}

/// `CLOCK_MONOTONIC`: nobody sets it.
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
        // To a moment and not for a time: whatever comes between, the sleep ends when it should.
        while clock_nanosleep_absolute(ClockId::Monotonic, &moment) == Err(Errno::INTR) {}
    }
}
