//! Reasons why a core cannot be held, with remedies.

use std::io;
use std::path::{Path, PathBuf};

use crate::cpu_list::CpuList;

/// Reason why a core cannot be reserved for a program alone.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HoldRefusal {
    /// The group has only one core.
    #[error(
        "no core would be left for other programs, since {} has only {cores}; use `share = \"lend\"`",
        group.display()
    )]
    NoCoreLeft {
        /// Group that the lane was started from.
        group: PathBuf,
        /// Cores of the group.
        cores: CpuList,
    },
    /// The group does not have the core.
    #[error("{} has only the cores {cores}; name one of these", group.display())]
    NotInGroup {
        /// Group that the lane was started from.
        group: PathBuf,
        /// Cores of the group.
        cores: CpuList,
    },
    /// Another group has the core, too.
    #[error(
        "{} has it, too (its cores are {cores}); take the core out of its cpuset.cpus, name another core, or use `share = \"lend\"`",
        group.display()
    )]
    Shared {
        /// Other group.
        group: PathBuf,
        /// Cores of the other group.
        cores: CpuList,
    },
    /// Tasks of groups above run on the core, too.
    #[error(
        "{} is not exclusive, so tasks of other groups run on its cores; start the lane from the topmost group, \
         write 1 to its cpuset.cpu_exclusive, or use `share = \"lend\"`",
        group.display()
    )]
    NotExclusive {
        /// Group that the lane was started from.
        group: PathBuf,
    },
    /// Another lane holds a core of the group.
    #[error(
        "this process is in {}, a group of the lane that holds core {held}; wait until that lane ends, or use `share = \"lend\"`",
        group.display()
    )]
    Within {
        /// Group that this lane would be started from.
        group: PathBuf,
        /// Core that is held already.
        held: u32,
    },
    /// A group of this name exists.
    #[error(
        "group {} already exists: it belongs to a lane of another state directory, or is left over from one; run `evermap lane undo`, \
         or remove it with `rmdir` if it is unused",
        group.display()
    )]
    Collision {
        /// Existing group.
        group: PathBuf,
    },
    /// The user has no right to do this.
    #[error(
        "this user may not {operation} {}: {source}; run as root, get the group delegated to you, or use `share = \"lend\"`",
        path.display()
    )]
    NoRight {
        /// Operation that failed.
        operation: &'static str,
        /// File or group.
        path: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// There is no cpuset controller.
    #[error(
        "no cpuset controller: version 1 is not mounted, and version 2 has none enabled for the groups above this process; \
         use `share = \"lend\"`"
    )]
    NoController,
    /// No group above can contain a partition.
    #[error(
        "no group above {} is a partition root without processes, which a partition needs as its parent; \
         start the lane where the topmost group is visible, or use `share = \"lend\"`",
        group.display()
    )]
    NoPartitionRoot {
        /// Group that the lane was started from.
        group: PathBuf,
    },
    /// The kernel did not accept the partition.
    #[error(
        "the kernel did not make {} a partition: it reports `{said}`; name another core, or use `share = \"lend\"`",
        group.display()
    )]
    Invalid {
        /// Group of the partition.
        group: PathBuf,
        /// Text of `cpuset.cpus.partition`.
        said: String,
    },
    /// Version 2 moves whole processes only.
    #[error(
        "a partition of version 2 cannot hold a single thread; start the whole program in a lane (`evermap lane run`), or use `share = \"lend\"`"
    )]
    WholeProcesses,
    /// Another error of the kernel.
    #[error(
        "cannot {operation} {}: {source}; use `share = \"lend\"`, and run `evermap lane undo` if `evermap lane status` shows remains of this lane",
        path.display()
    )]
    Kernel {
        /// Operation that failed.
        operation: &'static str,
        /// File or group.
        path: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
}

impl HoldRefusal {
    pub(crate) fn of(operation: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                HoldRefusal::NoRight { operation, path, source }
            }
            _ => HoldRefusal::Kernel { operation, path, source },
        }
    }

    /// Returns true if only a right or the kernel's support is missing. A lane then does without
    /// the hold, and reports that.
    pub(crate) fn is_lack_of_right(&self) -> bool {
        matches!(self, HoldRefusal::NoRight { .. } | HoldRefusal::NoController)
    }
}
