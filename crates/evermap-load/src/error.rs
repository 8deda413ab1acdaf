//! What can go wrong with a load: the thing, the cause, the remedy.

use std::io;
use std::path::PathBuf;

use crate::plan::Method;

/// As everywhere in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// How a file changed while it was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum Change {
    /// It is shorter.
    CutShort,
    /// It is longer.
    Grown,
    /// It has its length, and other contents, or may have.
    Rewritten,
    /// Its name belongs to another file now, or to none.
    Replaced,
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Change::CutShort => "was cut short",
            Change::Grown => "has grown",
            Change::Rewritten => "was written to",
            Change::Replaced => "was replaced by another file, or removed,",
        })
    }
}

/// Why a file could not be loaded, or not wholly. The file is never changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call failed.
    #[error("cannot {operation} {}: {source}{}", path.display(), remedy(operation, source))]
    Io {
        /// What was tried, as in "cannot ...".
        operation: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Bytes could not be read. All others can be used.
    #[error(
        "cannot read {length_bytes} bytes at {offset_bytes} of {}: {source}; the rest of it is loaded, see the kernel's log for the disk",
        path.display()
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Where in it.
        offset_bytes: u64,
        /// How many, at most.
        length_bytes: u64,
        /// Why.
        source: io::Error,
    },
    /// The file is not what it was when the load began: what was not loaded before is not given away.
    #[error("{} {change} while it was loaded: load it again", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// What happened to it.
        change: Change,
    },
    /// What the name stands for has no bytes at offsets.
    #[error("{} is {what}: only regular files can be loaded", path.display())]
    NotAFile {
        /// The name.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// The range that was asked for goes beyond the file, or beyond what was loaded of it.
    #[error(
        "of {}, {there_bytes} bytes are there, and the range {begin_bytes}..{end_bytes} is not within them: ask for less",
        path.display()
    )]
    NoSuchRange {
        /// The file.
        path: PathBuf,
        /// Its length, or that of its image.
        there_bytes: u64,
        /// The first byte wanted.
        begin_bytes: u64,
        /// The byte after the last.
        end_bytes: u64,
    },
    /// What has to be private does not fit into the memory there is.
    #[error(
        "{} takes {needed_bytes} bytes of memory, and {limit} leaves {available_bytes}: load a range of it, allow a mapping, or give the process more",
        path.display()
    )]
    NoMemory {
        /// The file.
        path: PathBuf,
        /// Private memory needed.
        needed_bytes: u64,
        /// What there is.
        available_bytes: u64,
        /// Who says so.
        limit: &'static str,
    },
    /// The method that was asked for by name cannot do it.
    #[error("cannot load {} by `{method}`: {why}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// The method.
        method: Method,
        /// What is missing, and what would do.
        why: String,
    },
    /// The threads that load this image are gone: something killed them.
    #[error(
        "the threads that load {} were killed: what was not loaded before cannot be had; load it again, without whatever kills threads of this process",
        path.display()
    )]
    ThreadsLost {
        /// The file.
        path: PathBuf,
    },
    /// A file of rules, or a recording, says something that cannot be.
    #[error("{}: {what}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        what: String,
    },
}

fn remedy(operation: &str, error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        // Of `mmap`, which waits for nothing else.
        Some(libc::EAGAIN) if operation.contains("memory") => {
            "; this process locks its memory (mlockall), and may lock no more: raise `ulimit -l`"
        }
        Some(libc::ENOENT) => "; see that the name is right",
        Some(libc::EACCES | libc::EPERM) => "; its permissions must let this user read it",
        Some(libc::EMFILE | libc::ENFILE) => {
            "; too many files are open: raise `ulimit -n`, or close some"
        }
        Some(libc::ENOMEM) => {
            "; there is no memory left: see `ulimit -v` and the control group's limit"
        }
        Some(libc::EIO) => "; the disk is failing or gone: see the kernel's log",
        Some(libc::ENOSPC | libc::EDQUOT) => "; free some, or name a file elsewhere",
        _ => "",
    }
}
