//! Why a core that a policy names cannot be a lane's.

use std::path::PathBuf;

use super::CpuList;

/// Why a core cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CoreRefusal {
    /// There is none of this number.
    #[error("there is none, only {possible}; name one of these, or say `core = \"auto\"`")]
    Absent {
        /// What could be there.
        possible: CpuList,
    },
    /// It is switched off.
    #[error(
        "it is offline, {online} run; switch it on (`echo 1 > /sys/devices/system/cpu/cpuN/online` as root), or name another"
    )]
    Offline {
        /// What runs.
        online: CpuList,
    },
    /// The control group of this process leaves it out.
    #[error("the cpuset of this process has only {cores} ({}); start it in another group, or name one of these", file.display())]
    NotInCpuset {
        /// Where that is said.
        file: PathBuf,
        /// What it has.
        cores: CpuList,
    },
    /// The affinity of this process leaves it out.
    #[error(
        "the affinity of this process is {allowed} (`taskset`, or what started it, has set that); widen it with `taskset -p`, or name one of these"
    )]
    NotInAffinity {
        /// What it is.
        allowed: CpuList,
    },
    /// Another lane has it.
    #[error("another lane has it; `evermap lane status` lists them")]
    Taken,
}
