//! Explains refusals of the kernel, since an error number alone does not lead to the cause.

use std::io;

use rustix::thread::{CapabilitySet, capabilities};

use super::NotApplied;
use crate::machine::{Machine, why_refused};
use crate::sys::scheduler::{Policy, Scheduling};

/// Explains a refused alternative of scheduling.
pub(super) fn not_scheduled(
    machine: &Machine,
    choice: &Scheduling,
    error: &io::Error,
) -> NotApplied {
    let what = match choice.policy {
        Policy::Fifo => format!("SCHED_FIFO at priority {}", choice.priority),
        Policy::Deadline => "SCHED_DEADLINE".to_owned(),
        _ => return other("pinning to the core", error),
    };
    let (why, remedy) = why_refused(machine, choice.policy, error);
    NotApplied { what, why, remedy }
}

/// Explains that `SCHED_DEADLINE` was not tried with a core.
pub(super) fn pinned_deadline() -> NotApplied {
    NotApplied {
        what: "SCHED_DEADLINE".into(),
        why: "the kernel refuses it to pinned programs; FIFO is used instead".into(),
        remedy: "set `core = \"auto\"` and `share = \"lend\"` to use it without a core".into(),
    }
}

/// Explains that a policy names a core but shares none.
pub(super) fn core_without_share(core: u32) -> NotApplied {
    NotApplied {
        what: format!("core {core}"),
        why: "`share = \"off\"` uses no core".into(),
        remedy: "set `share = \"lend\"` as well".into(),
    }
}

/// Returns true if this process and its children may lock memory beyond any limit.
pub(super) fn may_lock_memory() -> bool {
    capabilities(None).is_ok_and(|own| own.effective.contains(CapabilitySet::IPC_LOCK))
}

/// Explains that the limit of locked memory could not be raised.
pub(super) fn no_memory_limit(error: &io::Error) -> NotApplied {
    NotApplied {
        what: "no limit on locked memory".into(),
        why: format!("cannot raise RLIMIT_MEMLOCK: {error}"),
        remedy: "raise the limit (`LimitMEMLOCK=infinity` of the service), or run as root".into(),
    }
}

/// Explains another refusal.
pub(super) fn other(what: &str, error: &io::Error) -> NotApplied {
    NotApplied {
        what: what.into(),
        why: format!("the kernel refused it: {error}"),
        remedy: "see `evermap lane check`".into(),
    }
}
