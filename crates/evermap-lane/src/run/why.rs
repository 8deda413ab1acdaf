//! Why the kernel refused something, in words: an error number alone sends nobody to the right place.

use std::io;

use rustix::process::{Resource, getrlimit};

use super::Missed;
use crate::machine::Machine;

/// `SCHED_FIFO` was refused.
pub(super) fn no_fifo(machine: &Machine, priority: u32, error: &io::Error) -> Missed {
    let what = format!("SCHED_FIFO at {priority}");
    if error.raw_os_error() != Some(libc::EPERM) {
        let remedy = "see `evermap lane check`".into();
        return Missed { what, why: format!("the kernel says: {error}"), remedy };
    }
    if let Some((file, 0)) = machine.groups.real_time_runtime_us() {
        return Missed {
            what,
            why: format!(
                "{} is 0: nobody in this group can be real-time, root neither",
                file.display()
            ),
            remedy: format!(
                "write a share to it (`echo 100000 > {}`), or start the lane from the topmost group",
                file.display()
            ),
        };
    }
    let limit =
        getrlimit(Resource::Rtprio).current.map_or("unlimited".into(), |limit| limit.to_string());
    Missed {
        what,
        why: format!("this user has no CAP_SYS_NICE, and RLIMIT_RTPRIO is {limit}"),
        remedy: format!(
            "raise the limit (`LimitRTPRIO={priority}` of the service, or `rtprio {priority}` in /etc/security/limits.d), or do it as root"
        ),
    }
}

/// `SCHED_DEADLINE` was refused to a program that is not pinned.
pub(super) fn no_deadline(error: &io::Error) -> Missed {
    let (why, remedy) = match error.raw_os_error() {
        Some(libc::EBUSY) => (
            "the deadlines of others leave no room for this budget".to_owned(),
            "lower `budget_us`, or end one of them",
        ),
        Some(libc::EPERM) => (
            "this user has no CAP_SYS_NICE, or the program may not use all cores (`taskset`, cpusets)".to_owned(),
            "do it as root, with all cores allowed",
        ),
        _ => (format!("the kernel says: {error}"), "see `budget_us`, `deadline_us` and the period"),
    };
    Missed { what: "SCHED_DEADLINE".into(), why, remedy: remedy.into() }
}

/// `SCHED_DEADLINE` was not even asked for.
pub(super) fn pinned_deadline() -> Missed {
    Missed {
        what: "SCHED_DEADLINE".into(),
        why: "the kernel refuses it to programs that have one core; FIFO is used instead".into(),
        remedy: "say `core = \"auto\"` and `share = \"lend\"` to have it without a core".into(),
    }
}

/// The limit for locked memory stays.
pub(super) fn no_memory_limit(error: &io::Error) -> Missed {
    Missed {
        what: "no limit for memory that it locks".into(),
        why: format!("RLIMIT_MEMLOCK cannot be raised: {error}"),
        remedy: "raise it (`LimitMEMLOCK=infinity` of the service), or do it as root".into(),
    }
}

/// Something else.
pub(super) fn other(what: &str, error: &io::Error) -> Missed {
    Missed {
        what: what.into(),
        why: format!("the kernel says: {error}"),
        remedy: "see `evermap lane check`".into(),
    }
}
