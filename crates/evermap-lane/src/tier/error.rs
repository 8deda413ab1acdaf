//! What can go wrong with a tier: the thing, the cause, the remedy.

use std::io;
use std::path::PathBuf;

use super::openers::{Opener, by_whom};

/// As everywhere in this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a file is not on the tier, or not back. No contents are lost, and the file's path leads to what it led to before, unless an
/// error says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call failed.
    #[error("cannot {operation} {}: {source}{}", path.display(), remedy(source))]
    Io {
        /// What was tried, as in "cannot ...".
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// This file cannot be placed.
    #[error("{} cannot be placed: {why}", path.display())]
    Unsuitable {
        /// The file.
        path: PathBuf,
        /// Why not, and what to do about it.
        why: super::Unsuitable,
    },
    /// Somebody else has the file open.
    #[error("{} is open {}: end that first, or wait for it", path.display(), by_whom(by))]
    InUse {
        /// The file.
        path: PathBuf,
        /// Who has it open, as far as this user may know.
        by: Vec<Opener>,
    },
    /// Somebody opened the file while it was moved. They have it, and nothing was changed.
    #[error("somebody opened {} while it was moved, and was let in: move it when nobody needs it", path.display())]
    Interrupted {
        /// The file.
        path: PathBuf,
    },
    /// A file is not what it was.
    #[error("{} has changed ({what}): place it again, when nobody writes to it", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// What gave it away.
        what: String,
    },
    /// No room on the tier.
    #[error(
        "no room for {} on {}: it takes {needed_bytes} bytes, and {free_bytes} are free; take files back with `evermap lane place back`, or choose fewer",
        path.display(), tier.display()
    )]
    TierFull {
        /// The tier.
        tier: PathBuf,
        /// The file.
        path: PathBuf,
        /// What it takes.
        needed_bytes: u64,
        /// What there is.
        free_bytes: u64,
    },
    /// The tier is not there.
    #[error("the tier {} is not there, and {} is on it: mount it, and do this again", tier.display(), path.display())]
    TierMissing {
        /// The tier.
        tier: PathBuf,
        /// What it is needed for.
        path: PathBuf,
    },
    /// Files cannot be switched to this tier.
    #[error("no file can be switched to {}: {why}; use mode `view` there", tier.display())]
    NotLasting {
        /// The tier.
        tier: PathBuf,
        /// Why not.
        why: String,
    },
    /// A directory that others could have put there, or could change.
    #[error("{} is not safe to use: {why}", path.display())]
    UnsafeDirectory {
        /// The directory.
        path: PathBuf,
        /// Why, and what would be right.
        why: String,
    },
    /// The copy that was read back is not what the file has.
    #[error("the copy of {} read back otherwise than it was written, and was discarded: check the disk and the memory of {}", path.display(), tier.display())]
    Differs {
        /// The file.
        path: PathBuf,
        /// Where the copy was.
        tier: PathBuf,
    },
    /// The tier cannot keep all that the file has.
    #[error("{} cannot move to {}: its {what} would be lost; {instead}", path.display(), tier.display())]
    NotKept {
        /// The file.
        path: PathBuf,
        /// Where it was to go.
        tier: PathBuf,
        /// What is not kept, and why.
        what: String,
        /// What to do.
        instead: &'static str,
    },
    /// Both the copy and the kept original were written to since.
    #[error(
        "both {} (which {} leads to) and the original, {}, were written to: nothing is lost; compare the two, and take one back with `--keep copy` or `--keep original`",
        copy.display(), path.display(), kept.display()
    )]
    Conflict {
        /// The file's path.
        path: PathBuf,
        /// On the tier.
        copy: PathBuf,
        /// Beside the path.
        kept: PathBuf,
    },
    /// The copy on the tier is not there, or is not what was put there, though nobody wrote to it.
    #[error("the copy {} of {} is damaged: {what}; {}", copy.display(), path.display(), of_kept(kept))]
    Damaged {
        /// The file's path.
        path: PathBuf,
        /// On the tier.
        copy: PathBuf,
        /// What is wrong with it.
        what: String,
        /// Where the original still is.
        kept: Option<PathBuf>,
    },
    /// The path leads elsewhere now.
    #[error(
        "{} {what}: the placed file is not touched; it is at {}{}; move away what is in the way, and do this again",
        path.display(), copy.display(), kept.as_ref().map(|kept| format!(", as it was placed at {}", kept.display())).unwrap_or_default()
    )]
    Replaced {
        /// The file's path.
        path: PathBuf,
        /// What is there instead.
        what: String,
        /// On the tier.
        copy: PathBuf,
        /// Beside the path.
        kept: Option<PathBuf>,
    },
    /// The path leads nowhere now.
    #[error(
        "{} is not there any more, but its contents are, at {}: `evermap lane place back` puts it there again",
        path.display(), copy.display()
    )]
    Vanished {
        /// The file's path.
        path: PathBuf,
        /// On the tier.
        copy: PathBuf,
    },
    /// The directory that the file is in is not there, or is another one.
    #[error(
        "the directory {} of {} {what}, but its contents are there, at {}: mount its disk, or give it its name again, and do this again; or make a new \
         one, and take the file back to that with `evermap lane place back --keep copy`",
        directory.display(), path.display(), copy.display()
    )]
    DirectoryGone {
        /// The directory.
        directory: PathBuf,
        /// The file's path.
        path: PathBuf,
        /// What became of it.
        what: &'static str,
        /// On the tier.
        copy: PathBuf,
    },
    /// Nothing has placed it.
    #[error("{} is not placed{}", path.display(), hint.as_ref().map(|hint| format!(": {hint}")).unwrap_or_default())]
    NotPlaced {
        /// The file.
        path: PathBuf,
        /// What to look for.
        hint: Option<String>,
    },
    /// It is placed already.
    #[error("{} is placed already, on {}; take it back first with `evermap lane place back`", path.display(), copy.display())]
    AlreadyPlaced {
        /// The file.
        path: PathBuf,
        /// Where it is.
        copy: PathBuf,
    },
    /// Another process is at it.
    #[error("another process is placing {} or taking it back: wait for it", path.display())]
    Busy {
        /// The file, or its record.
        path: PathBuf,
    },
    /// Asked to stop.
    #[error("interrupted: {} is as it was", path.display())]
    Cancelled {
        /// The file that was being moved.
        path: PathBuf,
    },
    /// A record of a journal that makes no sense.
    #[error("the record {} cannot be used: {what}; it is left where it is", path.display())]
    Record {
        /// The record.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// No mounts of one's own.
    #[error("no view, as this process gets no mounts of its own: {why}")]
    NoNamespace {
        /// Why, and where that would be allowed.
        why: String,
    },
    /// A pattern that is none, or that matches too much.
    #[error("`{pattern}`: {what}")]
    Pattern {
        /// As it was given.
        pattern: String,
        /// What is wrong.
        what: String,
    },
    /// Copying failed.
    #[error(transparent)]
    Transfer(evermap_transfer::Error),
}

impl Error {
    /// For `map_err` on a call.
    pub(super) fn io<E: Into<io::Error>>(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(E) -> Self {
        move |source| Self::Io { operation, path: path.into(), source: source.into() }
    }
}

fn of_kept(kept: &Option<PathBuf>) -> String {
    match kept {
        Some(kept) => format!(
            "the original is at {}: `evermap lane place back --keep original` puts it back",
            kept.display()
        ),
        None => "restore it from a backup, or have what is left of it with `evermap lane place back --keep copy`".into(),
    }
}

/// What to do about an error of the system, where that is the same for all files.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "; see whether the name is right",
        io::ErrorKind::PermissionDenied => "; do it as a user who may, or have it allowed",
        io::ErrorKind::ReadOnlyFilesystem => "; its file system is mounted read-only",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; free some space there",
        _ => "",
    }
}
