//! Remaining limit of locked memory (RLIMIT_MEMLOCK).

use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

/// Returns the bytes that this process may still lock, or `None` without a limit. Cost: a read of
/// `/proc` if there is a limit.
pub(crate) fn locked_room_bytes() -> Option<u64> {
    let may_all =
        capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    if may_all {
        return None;
    }
    let limit_bytes = getrlimit(Resource::Memlock).current?;
    Some(limit_bytes.saturating_sub(locked_bytes().unwrap_or(0)))
}

/// Returns the bytes that this process has locked.
pub(crate) fn locked_bytes() -> Option<u64> {
    evermap_observe::proc::status_bytes("VmLck")
}
