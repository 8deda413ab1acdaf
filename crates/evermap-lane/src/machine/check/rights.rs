//! Rights of this process, as far as the kernel reports them: capabilities, limits, filters,
//! namespaces.

use evermap_observe::proc::field;
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

use super::super::Machine;

/// Rights that a lane's system calls need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rights {
    /// `CAP_SYS_NICE`.
    pub(super) may_schedule: bool,
    /// `CAP_IPC_LOCK`.
    pub(super) may_lock: bool,
    /// Maximum real-time priority without the capability (RLIMIT_RTPRIO); 0 allows none.
    pub(super) priority_max: u64,
    /// Bytes that may be locked without the capability. `None` is unlimited.
    pub(super) locked_bytes_max: Option<u64>,
    /// A seccomp filter is active, which may refuse calls with any error.
    pub(super) is_filtered: bool,
    /// Capabilities are valid in this process' user namespace only, but scheduling belongs to the
    /// first one.
    pub(super) is_in_user_namespace: bool,
}

impl Rights {
    pub(super) fn detect(machine: &Machine) -> Self {
        let own = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
        let status = machine.roots.own_text("status").unwrap_or_default();
        let users = machine.roots.own_text("uid_map").unwrap_or_default();
        Rights {
            may_schedule: own.contains(CapabilitySet::SYS_NICE),
            may_lock: own.contains(CapabilitySet::IPC_LOCK),
            priority_max: getrlimit(Resource::Rtprio).current.unwrap_or(99),
            locked_bytes_max: getrlimit(Resource::Memlock).current,
            is_filtered: field(&status, "Seccomp") == Some("2"),
            is_in_user_namespace: is_nested(&users),
        }
    }
}

/// Returns true if the user map is not that of the first namespace, which maps all users to
/// themselves.
fn is_nested(map: &str) -> bool {
    let numbers: Vec<&str> = map.split_ascii_whitespace().collect();
    !numbers.is_empty() && numbers != ["0", "0", "4294967295"]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_user_namespace_maps_all_users() {
        assert!(!is_nested("         0          0 4294967295\n"));
        assert!(is_nested("0 1000 1\n"));
        assert!(is_nested("0 0 65536\n65536 100000 65536\n"));
        assert!(!is_nested(""), "without /proc the namespace is unknown");
    }
}
