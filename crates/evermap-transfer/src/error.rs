//! What can go wrong with a transfer: the thing, the cause, the remedy.

use std::io;
use std::path::PathBuf;

/// As everywhere in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Which end of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// Where bytes come from. Never changed.
    Source,
    /// Where they go.
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

/// Why a transfer did not happen, or not wholly. The target's name has what it had before, unless an error says
/// otherwise; the source is never changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call failed on one of the files.
    #[error("cannot {operation} {}: {source}{}", path.display(), remedy(source))]
    Io {
        /// What was tried, as in "cannot ...".
        operation: &'static str,
        /// On which file or address.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No room, found before the first byte wherever the file system can say so.
    #[error(
        "no space for {} ({needed_bytes} bytes): free some on its disk, or name a target on another one",
        path.display()
    )]
    NoSpace {
        /// The file that was to be made.
        path: PathBuf,
        /// The data that it takes.
        needed_bytes: u64,
    },
    /// A sender brings more than a receiver takes from one transfer.
    #[error(
        "{} would take {needed_bytes} bytes, and one transfer may bring {most_bytes} here: allow more with `room_bytes_max` \
         (--room), or free some space",
        path.display()
    )]
    TooLarge {
        /// The file that was to be made.
        path: PathBuf,
        /// The data that it takes.
        needed_bytes: u64,
        /// The most that one transfer may bring.
        most_bytes: u64,
    },
    /// Source and target are one file.
    #[error("{} and {} are the same file: nothing to copy; name another target", source_path.display(), target_path.display())]
    SameFile {
        /// As named.
        source_path: PathBuf,
        /// As named.
        target_path: PathBuf,
    },
    /// The source is not what it was when the transfer began.
    #[error("{} changed while it was copied ({what}): copy it again when nobody writes to it", path.display())]
    SourceChanged {
        /// The source.
        path: PathBuf,
        /// What gave it away.
        what: String,
    },
    /// What was read back from the target is not what the source has.
    #[error(
        "{} is not what {} has: first difference at byte {offset_bytes}; the copy was discarded: check the target's disk \
         and memory",
        target_path.display(), source_path.display()
    )]
    Differs {
        /// What was copied.
        source_path: PathBuf,
        /// What was read back.
        target_path: PathBuf,
        /// Where they first differ.
        offset_bytes: u64,
    },
    /// The engine that was asked for by name cannot do it.
    #[error("engine `{engine}` cannot move {} to {}: {why}; leave `engine` out to have one picked", source_path.display(), target_path.display())]
    Refused {
        /// Its name.
        engine: &'static str,
        /// From here.
        source_path: PathBuf,
        /// To here.
        target_path: PathBuf,
        /// Its reason.
        why: String,
    },
    /// Another process is copying to the same target, and both want to be resumable.
    #[error("{} is being written by another copy: wait for it, or copy without `resume`", path.display())]
    Busy {
        /// The unfinished copy.
        path: PathBuf,
    },
    /// Somebody asked it to stop.
    #[error("interrupted; {left}")]
    Cancelled {
        /// What is left behind, in words.
        left: String,
    },
    /// The two ends of a connection do not understand each other, or one of them went away.
    #[error("connection with {address}: {what}")]
    Peer {
        /// The other end.
        address: String,
        /// What happened, and what to do.
        what: String,
    },
    /// Some of a tree could not be copied; the report says what, and what became of the rest.
    #[error("{0}")]
    Incomplete(Box<crate::tree::TreeReport>),
    /// The other end of a connection says why it gave up, or would not begin.
    #[error("{address} says: {why}")]
    PeerRefused {
        /// The other end.
        address: String,
        /// Its reason, and what to do.
        why: String,
    },
    /// Arguments that no transfer can be made of.
    #[error("{0}")]
    Usage(String),
}

impl Error {
    /// For `map_err` on a call on a file.
    pub fn io<E: Into<io::Error>>(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(E) -> Error {
        move |source| Error::Io { operation, path: path.into(), source: source.into() }
    }
}

/// What to do about an error of the system, where that is the same for all files.
fn remedy(error: &io::Error) -> &'static str {
    use rustix::io::Errno;
    match Errno::from_io_error(error) {
        Some(Errno::NOENT) => "; see whether the name is right, and its directory there",
        Some(Errno::NOTDIR) => "; a part of the name is a file: see whether the name is right",
        Some(Errno::ACCESS | Errno::PERM) => "; do it as a user who may, or have it allowed",
        Some(Errno::ROFS) => "; name a target that may be written to",
        Some(Errno::NAMETOOLONG) => "; give it a shorter name",
        Some(Errno::LOOP) => "; a symbolic link leads back to itself: name the file",
        Some(Errno::MFILE | Errno::NFILE) => {
            "; too many files are open: raise `ulimit -n`, or close some"
        }
        Some(Errno::NOSPC | Errno::DQUOT) => "; free some, or name a target elsewhere",
        Some(Errno::IO) => "; the disk is failing or gone: see the kernel's log",
        _ => "",
    }
}
