//! Reasons why a core named by a policy cannot be used.

use std::path::PathBuf;

use crate::cpu_list::CpuList;

/// Reason why a core cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CoreRefusal {
    /// No core has this number.
    #[error("the machine has only {possible}; name one of these, or set `core = \"auto\"`")]
    Absent {
        /// Possible cores.
        possible: CpuList,
    },
    /// The core is offline.
    #[error(
        "it is offline, and {online} are online; switch it on (`echo 1 > /sys/devices/system/cpu/cpuN/online` as root), or name another core"
    )]
    Offline {
        /// Online cores.
        online: CpuList,
    },
    /// The cpuset of this process excludes the core.
    #[error("the cpuset of this process has only {cores} ({}); start it in another group, or name one of these", file.display())]
    NotInCpuset {
        /// File that lists the cores.
        file: PathBuf,
        /// Cores of the cpuset.
        cores: CpuList,
    },
    /// The affinity of this process excludes the core.
    #[error(
        "the affinity of this process is {allowed} (set by `taskset` or by the program that started it); widen it with `taskset -p`, or name one of these"
    )]
    NotInAffinity {
        /// Cores of the affinity.
        allowed: CpuList,
    },
    /// Another lane has claimed the core.
    #[error("another lane has claimed it; list lanes with `evermap lane status`")]
    Taken,
}
