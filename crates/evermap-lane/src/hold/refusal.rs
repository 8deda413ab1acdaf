//! Why a core cannot be held, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use crate::machine::CpuList;

/// Why a core cannot be a program's alone.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HoldRefusal {
    /// It is the only one.
    #[error(
        "no other core would be left for everything else: {cores} is all that {} has; use `share = \"lend\"`",
        group.display()
    )]
    NoCoreLeft {
        /// The group that the lane was started from.
        group: PathBuf,
        /// What it has.
        cores: CpuList,
    },
    /// The group doesn't have it.
    #[error("{} has the cores {cores} only; name one of these", group.display())]
    NotInGroup {
        /// The group that the lane was started from.
        group: PathBuf,
        /// What it has.
        cores: CpuList,
    },
    /// Somebody else's group has the core, too.
    #[error(
        "{} has it, too (its cores are {cores}); take the core out of its cpuset.cpus, name another core, or use `share = \"lend\"`",
        group.display()
    )]
    Shared {
        /// Whose.
        group: PathBuf,
        /// What that has.
        cores: CpuList,
    },
    /// Tasks of groups above run on the core, too.
    #[error(
        "{} is not exclusive itself, so tasks of other groups run on its cores; start the lane from the topmost group, \
         write 1 to its cpuset.cpu_exclusive, or use `share = \"lend\"`",
        group.display()
    )]
    NotExclusive {
        /// The group that the lane was started from.
        group: PathBuf,
    },
    /// Another lane holds a core of the group.
    #[error(
        "this process is in {}, which a lane made that holds core {held}; wait for that lane's end, or use `share = \"lend\"`",
        group.display()
    )]
    Within {
        /// The group that this lane would be started from.
        group: PathBuf,
        /// The core that is held already.
        held: u32,
    },
    /// There is a group of the name already.
    #[error(
        "there is a group {} already: of a lane of another state directory, or left behind by one; `evermap lane undo` removes what was left \
         behind, else remove it (`rmdir`) when nobody uses it",
        group.display()
    )]
    Collision {
        /// Which.
        group: PathBuf,
    },
    /// The kernel doesn't let this user.
    #[error(
        "this user may not {operation} {}: {source}; run it as root, have that group delegated to you, or use `share = \"lend\"`",
        path.display()
    )]
    NoRight {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// There are no cpusets.
    #[error(
        "no cpuset controller is there: of version 1 none is mounted, of version 2 none is enabled for the groups above this process; \
         use `share = \"lend\"`"
    )]
    NoController,
    /// No group above can have a partition.
    #[error(
        "no group above {} is the root of a partition without processes of its own, which a partition must be in; \
         start the lane where the topmost group can be seen, or use `share = \"lend\"`",
        group.display()
    )]
    NoPartitionRoot {
        /// The group that the lane was started from.
        group: PathBuf,
    },
    /// The kernel made no partition of it.
    #[error(
        "the kernel made no partition of {}: it says `{said}`; name another core, or use `share = \"lend\"`",
        group.display()
    )]
    Invalid {
        /// The group.
        group: PathBuf,
        /// What `cpuset.cpus.partition` said.
        said: String,
    },
    /// Version 2 moves processes only.
    #[error(
        "one thread of a process cannot have a partition of version 2; put the whole program in a lane (`evermap lane run`), or use `share = \"lend\"`"
    )]
    WholeProcesses,
    /// Something else.
    #[error(
        "cannot {operation} {}: {source}; use `share = \"lend\"`, and `evermap lane undo` if something is left of this lane (`evermap lane status` tells)",
        path.display()
    )]
    Kernel {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// The kernel's answer.
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

    /// Whether nothing but a right or the kernel's support is missing: a lane does without then, and says so.
    pub(crate) fn is_lack_of_right(&self) -> bool {
        matches!(self, HoldRefusal::NoRight { .. } | HoldRefusal::NoController)
    }
}
