//! What a process has used of the processor.

use std::mem::MaybeUninit;
use std::time::Duration;

/// Time that all threads of this process had on the processor so far: in the program, and in the kernel.
pub(crate) fn of_process() -> (Duration, Duration) {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the structure is live for the call, and all zeros are a valid one, should the call fail.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let time = |time: libc::timeval| {
        let us = (time.tv_sec as u64).saturating_mul(1_000_000).saturating_add(time.tv_usec as u64);
        Duration::from_micros(us)
    };
    (time(usage.ru_utime), time(usage.ru_stime))
}
