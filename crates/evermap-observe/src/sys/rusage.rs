//! `getrusage(2)`.

use crate::usage::Usage;

/// Returns the resources that this process has used since it started. `wall_s` is 0.
pub(crate) fn of_process() -> Usage {
    // SAFETY: all zeros is a valid value of this structure of integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure lives through the call, which writes nothing else.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) } != 0 {
        return Usage::default();
    }
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
