//! Exit status and resource use of a child.

use std::io;
use std::mem::zeroed;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

/// Resource use of a process and of the children that it waited for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ResourceUse {
    pub(crate) user: Duration,
    pub(crate) system: Duration,
    pub(crate) minor_faults: u64,
    pub(crate) major_faults: u64,
    /// Number of times that it waited for something.
    pub(crate) voluntary_switches: u64,
    /// Number of times that it was preempted.
    pub(crate) involuntary_switches: u64,
}

/// Reaps this child if it has ended.
pub(crate) fn try_wait(pid: u32) -> io::Result<Option<(ExitStatus, ResourceUse)>> {
    let mut status = 0;
    // SAFETY: a plain structure of integers, which the next call fills.
    let mut usage: libc::rusage = unsafe { zeroed() };
    // SAFETY: both pointers are to locals of this function.
    let result = unsafe { libc::wait4(pid as libc::pid_t, &mut status, libc::WNOHANG, &mut usage) };
    match result {
        0 => Ok(None),
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(Some((ExitStatus::from_raw(status), used(&usage)))),
    }
}

fn used(usage: &libc::rusage) -> ResourceUse {
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.max(0) as u64)
            + Duration::from_micros(time.tv_usec.max(0) as u64)
    };
    let count = |count: libc::c_long| count.max(0) as u64;
    ResourceUse {
        user: time(usage.ru_utime),
        system: time(usage.ru_stime),
        minor_faults: count(usage.ru_minflt),
        major_faults: count(usage.ru_majflt),
        voluntary_switches: count(usage.ru_nvcsw),
        involuntary_switches: count(usage.ru_nivcsw),
    }
}
