//! Errors of loading: the file, the cause, the remedy.

use std::io;
use std::path::PathBuf;

use crate::plan::Method;

/// Result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Change of a file during a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum Change {
    /// The file is shorter.
    Truncated,
    /// The file is longer.
    Grown,
    /// The length is the same, but the contents may differ.
    Rewritten,
    /// The file lost a name: it was replaced by another file, or a link to it was removed.
    Replaced,
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Change::Truncated => "was truncated",
            Change::Grown => "has grown",
            Change::Rewritten => "was written to",
            Change::Replaced => "was replaced by another file, or removed,",
        })
    }
}

/// Reason why a file could not be loaded, or not completely. The file is never changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("cannot {operation} {}: {source}{}", path.display(), remedy(operation, source))]
    Io {
        /// Operation that failed, to complete "cannot ...".
        operation: &'static str,
        /// File of the operation.
        path: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// Bytes could not be read. If the image exists, all its other bytes are usable.
    #[error(
        "cannot read {length_bytes} bytes at {offset_bytes} of {}: {source}; check the kernel log for disk errors",
        path.display()
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Offset in the file.
        offset_bytes: u64,
        /// Maximum number of unreadable bytes.
        length_bytes: u64,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The file changed after the load began. Bytes not loaded before are not returned.
    #[error("{} {change} while it was being loaded; load it again", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// Kind of change.
        change: Change,
    },
    /// The path does not name a regular file.
    #[error("{} is {what}: only regular files can be loaded", path.display())]
    NotAFile {
        /// Path as given.
        path: PathBuf,
        /// Kind of file.
        what: &'static str,
    },
    /// The requested range exceeds the file or the image.
    #[error(
        "cannot use range {begin_bytes}..{end_bytes} of {}: it has {there_bytes} bytes; use a range within them",
        path.display()
    )]
    NoSuchRange {
        /// The file.
        path: PathBuf,
        /// Length of the file or image.
        there_bytes: u64,
        /// First byte of the range.
        begin_bytes: u64,
        /// Byte after the last one of the range.
        end_bytes: u64,
    },
    /// Private memory for the load exceeds the available memory.
    #[error(
        "cannot load {}: it needs {needed_bytes} bytes of memory, and {limit} leaves {available_bytes}; load a range, allow mapping, or raise the limit",
        path.display()
    )]
    NoMemory {
        /// The file.
        path: PathBuf,
        /// Private memory needed.
        needed_bytes: u64,
        /// Available memory.
        available_bytes: u64,
        /// Source of the limit.
        limit: &'static str,
    },
    /// The method requested by name cannot load the file.
    #[error("cannot load {} by `{method}`: {why}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// The method.
        method: Method,
        /// Missing requirement and remedy.
        why: String,
    },
    /// The threads that load this image were killed, or this is a forked child, which lacks them.
    #[error(
        "the threads that load {} were killed, and the rest of the file cannot be loaded; find out what kills threads of this process, then load it again",
        path.display()
    )]
    ThreadsLost {
        /// The file.
        path: PathBuf,
    },
    /// A file of rules or a recording is invalid.
    #[error("{}: {what}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Problem and its position.
        what: String,
    },
}

fn remedy(operation: &str, error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        // From `mmap`, where EAGAIN means the locked-memory limit.
        Some(libc::EAGAIN) if operation.contains("memory") => {
            "; this process locks its memory (mlockall) and has reached its limit: raise `ulimit -l`"
        }
        Some(libc::ENOENT) => "; check the name",
        Some(libc::EACCES | libc::EPERM) => "; make it readable for this user",
        Some(libc::EMFILE | libc::ENFILE) => {
            "; too many files are open: raise `ulimit -n`, or close some"
        }
        Some(libc::ENOMEM) => {
            "; memory is exhausted: check `ulimit -v` and the control group's limit"
        }
        Some(libc::EIO) => "; the disk is failing or gone: check the kernel log",
        Some(libc::ENOSPC | libc::EDQUOT) => "; free space, or name a file on another disk",
        _ => "",
    }
}
