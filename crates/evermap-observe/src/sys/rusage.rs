//! `getrusage(2)`.

/// Returns the resources that this process has used since it started, or `None` if the call fails.
pub(crate) fn of_process() -> Option<libc::rusage> {
    // SAFETY: all zeros is a valid value of this structure of integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure lives through the call, which writes nothing else.
    let result = unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    (result == 0).then_some(usage)
}
