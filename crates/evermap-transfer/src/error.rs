//! Errors of a transfer: the file, the cause, the remedy.

use std::io;
use std::path::PathBuf;

use crate::tally::Outcome;

/// Result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Ends of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The end that is read. Never changed.
    Source,
    /// The end that is written.
    Target,
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Side::Source => "source",
            Side::Target => "target",
        })
    }
}

/// Reason a transfer failed, fully or in part. The target is unchanged unless the variant says
/// otherwise. The source is never changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed on a file.
    #[error("cannot {operation} {}: {source}{}", path.display(), remedy(source))]
    Io {
        /// The operation, as in "cannot ...".
        operation: &'static str,
        /// The file or address.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Not enough space. Found before the first byte if the file system can tell.
    #[error(
        "no space for {}{}: free space on that disk or choose a target on another",
        path.display(), size(*needed_bytes)
    )]
    NoSpace {
        /// The file to be created.
        path: PathBuf,
        /// Size of its data; 0 if not known.
        needed_bytes: u64,
    },
    /// The sender offers more than the receiver accepts in one transfer.
    #[error(
        "{} needs {needed_bytes} bytes, but one transfer may use at most {limit_bytes} here: raise `transfer_bytes_max` \
         (--room) or free space",
        path.display()
    )]
    TooLarge {
        /// The file to be created.
        path: PathBuf,
        /// Size of its data.
        needed_bytes: u64,
        /// Limit for one transfer.
        limit_bytes: u64,
    },
    /// Source and target are the same file.
    #[error("{} and {} are the same file: name another target", source_path.display(), target_path.display())]
    SameFile {
        /// Source, as given.
        source_path: PathBuf,
        /// Target, as given.
        target_path: PathBuf,
    },
    /// The source changed during the transfer.
    #[error("{} changed while it was copied ({what}): copy it again when no program writes to it", path.display())]
    SourceChanged {
        /// The source.
        path: PathBuf,
        /// Description of the change.
        what: String,
    },
    /// The target's data, read back, differs from the source's.
    #[error(
        "{} differs from {} at byte {offset_bytes}; the copy was discarded: check the target's disk and \
         memory",
        target_path.display(), source_path.display()
    )]
    Differs {
        /// The source.
        source_path: PathBuf,
        /// The copy that was read back.
        target_path: PathBuf,
        /// Offset of the first difference.
        offset_bytes: u64,
    },
    /// The requested engine cannot move this data.
    #[error("engine `{engine}` cannot move {} to {}: {why}; omit `engine` to select one automatically", source_path.display(), target_path.display())]
    Refused {
        /// Name of the engine.
        engine: &'static str,
        /// The source.
        source_path: PathBuf,
        /// The target.
        target_path: PathBuf,
        /// Reason.
        why: String,
    },
    /// Another process is making a resumable copy of the same target.
    #[error("{} is being written by another copy: wait for it, or copy without `resume`", path.display())]
    Busy {
        /// The unfinished copy.
        path: PathBuf,
    },
    /// The transfer was cancelled.
    #[error("interrupted; {left}")]
    Cancelled {
        /// Description of the data left behind.
        left: String,
    },
    /// Protocol error, or the connection was lost.
    #[error("connection with {address}: {what}")]
    Peer {
        /// Address of the peer.
        address: String,
        /// Cause and remedy.
        what: String,
    },
    /// Some entries of a tree could not be copied. Lists them and says whether the rest was
    /// published.
    #[error("{0}")]
    Incomplete(Box<IncompleteTree>),
    /// The peer refused the transfer or gave up, and sent a reason.
    #[error("{address} says: {why}")]
    PeerRefused {
        /// Address of the peer.
        address: String,
        /// The peer's reason and remedy.
        why: String,
    },
    /// Invalid arguments.
    #[error("{0}")]
    Usage(String),
}

impl Error {
    /// Returns a closure for `map_err` on a file operation.
    pub fn io<E: Into<io::Error>>(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(E) -> Error {
        move |source| Error::Io { operation, path: path.into(), source: source.into() }
    }
}

/// Errors of a tree copy, and the state of its target.
#[derive(Debug)]
pub struct IncompleteTree {
    /// The source, as given.
    pub source: PathBuf,
    /// The target, as given.
    pub target: PathBuf,
    /// State of the target.
    pub outcome: Outcome,
    /// Errors, up to [`TreeOptions::listed_max`](crate::tree::TreeOptions::listed_max).
    pub errors: Vec<Error>,
    /// Number of errors, listed or not.
    pub errors_total: u64,
}

/// One sentence.
impl std::fmt::Display for IncompleteTree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let target = self.target.display();
        let entries = if self.errors_total == 1 {
            "1 entry".to_string()
        } else {
            format!("{} entries", self.errors_total)
        };
        write!(f, "{entries} of {} could not be copied", self.source.display())?;
        if let Some(first) = self.errors.first() {
            write!(f, ", first: {first}")?;
        }
        match self.outcome {
            Outcome::Published => write!(f, "; {target} has the rest"),
            Outcome::Merged => write!(f, "; files already copied to {target} remain"),
            Outcome::Removed => write!(
                f,
                "; {target} was not created: fix the cause and copy again, or publish the rest with `keep_going` (--keep-going)"
            ),
        }
    }
}

/// Returns the size for a message, if it is known.
fn size(bytes: u64) -> String {
    match bytes {
        0 => String::new(),
        bytes => format!(" ({bytes} bytes)"),
    }
}

/// Returns the remedy for a system error, if one applies to all files.
fn remedy(error: &io::Error) -> &'static str {
    use rustix::io::Errno;
    match Errno::from_io_error(error) {
        Some(Errno::NOENT) => "; check that the name and its parent directory exist",
        Some(Errno::NOTDIR) => "; a component of the path is a file: check the name",
        Some(Errno::ACCESS | Errno::PERM) => {
            "; run as a user with permission, or change the permissions"
        }
        Some(Errno::ROFS) => "; choose a writable target",
        Some(Errno::NAMETOOLONG) => "; use a shorter name",
        Some(Errno::LOOP) => "; a symbolic link points to itself: name the file",
        Some(Errno::MFILE | Errno::NFILE) => {
            "; too many files are open: raise `ulimit -n` or close some"
        }
        Some(Errno::NOSPC | Errno::DQUOT) => "; free space or choose another target",
        Some(Errno::IO) => "; the disk failed or was removed: see the kernel log",
        _ => "",
    }
}
