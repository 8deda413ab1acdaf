//! Why the kernel refused something, in words: an error number alone sends nobody to the right place.

use std::io;

use rustix::thread::{CapabilitySet, capabilities};

use super::NotApplied;
use crate::machine::{Machine, why_refused};
use crate::sys::scheduler::{Policy, Scheduling};

/// A way to be scheduled was refused.
pub(super) fn not_scheduled(machine: &Machine, wish: &Scheduling, error: &io::Error) -> NotApplied {
    let what = match wish.policy {
        Policy::Fifo => format!("SCHED_FIFO at {}", wish.priority),
        Policy::Deadline => "SCHED_DEADLINE".to_owned(),
        _ => return other("its core", error),
    };
    let (why, remedy) = why_refused(machine, wish.policy, error);
    NotApplied { what, why, remedy }
}

/// `SCHED_DEADLINE` was not even asked for.
pub(super) fn pinned_deadline() -> NotApplied {
    NotApplied {
        what: "SCHED_DEADLINE".into(),
        why: "the kernel refuses it to programs that have one core; FIFO is used instead".into(),
        remedy: "say `core = \"auto\"` and `share = \"lend\"` to have it without a core".into(),
    }
}

/// A core is named, and none is wished.
pub(super) fn no_core_wished(core: u32) -> NotApplied {
    NotApplied {
        what: format!("core {core}"),
        why: "`share = \"off\"` is no core of its own".into(),
        remedy: "say `share = \"lend\"` beside it".into(),
    }
}

/// Whether this process, and what it starts, may lock memory beyond any limit.
pub(super) fn may_lock_memory() -> bool {
    capabilities(None).is_ok_and(|own| own.effective.contains(CapabilitySet::IPC_LOCK))
}

/// The limit for locked memory stays.
pub(super) fn no_memory_limit(error: &io::Error) -> NotApplied {
    NotApplied {
        what: "no limit for memory that it locks".into(),
        why: format!("RLIMIT_MEMLOCK cannot be raised: {error}"),
        remedy: "raise it (`LimitMEMLOCK=infinity` of the service), or do it as root".into(),
    }
}

/// Something else.
pub(super) fn other(what: &str, error: &io::Error) -> NotApplied {
    NotApplied {
        what: what.into(),
        why: format!("the kernel says: {error}"),
        remedy: "see `evermap lane check`".into(),
    }
}
