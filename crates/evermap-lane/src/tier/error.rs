//! Errors of the tier. Each names the file, the cause and the remedy.

use std::io;
use std::path::PathBuf;

use super::openers::{Opener, opened_by};

/// Result type of this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reason why a file could not be placed or taken back.
///
/// No contents are lost. The file's path still leads to the same contents unless the error says
/// otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("cannot {operation} {}: {source}{}", path.display(), remedy(source))]
    Io {
        /// The operation, worded to follow "cannot".
        operation: &'static str,
        /// File or directory of the operation.
        path: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
    /// The file cannot be placed.
    #[error("{} cannot be placed: {why}", path.display())]
    Unsuitable {
        /// The file.
        path: PathBuf,
        /// Reason and remedy.
        why: super::refusal::Unsuitable,
    },
    /// Another process has the file open.
    #[error("{} is open {}: end that process, or wait for it", path.display(), opened_by(by))]
    InUse {
        /// The file.
        path: PathBuf,
        /// Processes that have it open, as far as this user may see them.
        by: Vec<Opener>,
    },
    /// A process opened the file during the move, and was let in.
    #[error("a process opened {} while it was being moved: try again when the file is not in use", path.display())]
    Interrupted {
        /// The file.
        path: PathBuf,
    },
    /// The file was changed.
    #[error("{} has changed ({what}): place it again when no process writes to it", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// Attribute that changed.
        what: String,
    },
    /// The tier has too little free space.
    #[error(
        "no space for {} on {}: it needs {needed_bytes} bytes, and {free_bytes} are free; take files back with `evermap lane place back`, or place fewer files",
        path.display(), tier.display()
    )]
    TierFull {
        /// The tier.
        tier: PathBuf,
        /// The file.
        path: PathBuf,
        /// Space that the file needs.
        needed_bytes: u64,
        /// Free space on the tier.
        free_bytes: u64,
    },
    /// The tier is not available.
    #[error("the tier {} is not available, and {} is on it: mount the tier and try again", tier.display(), path.display())]
    TierMissing {
        /// The tier.
        tier: PathBuf,
        /// File that needs the tier.
        path: PathBuf,
    },
    /// The tier is not persistent, so files cannot be switched to it.
    #[error("cannot switch files to {}: {why}; use mode `view` for this tier", tier.display())]
    NotLasting {
        /// The tier.
        tier: PathBuf,
        /// Reason.
        why: String,
    },
    /// Other users could have created the directory, or can change it.
    #[error("{} is not safe to use: {why}", path.display())]
    UnsafeDirectory {
        /// The directory.
        path: PathBuf,
        /// Reason and remedy.
        why: String,
    },
    /// The copy, read back, differs from the file.
    #[error("the copy of {} differed from the file when read back and was discarded: check the disk of {} and the memory", path.display(), tier.display())]
    Differs {
        /// The file.
        path: PathBuf,
        /// Tier on which the copy was.
        tier: PathBuf,
    },
    /// The target file system cannot store all attributes of the file.
    #[error("cannot move {} to {}: its {what} would be lost; {instead}", path.display(), tier.display())]
    NotKept {
        /// The file.
        path: PathBuf,
        /// Target directory.
        tier: PathBuf,
        /// Attributes that would be lost, and why.
        what: String,
        /// Remedy.
        instead: &'static str,
    },
    /// Both the copy and the kept original were modified.
    #[error(
        "both {} (to which {} links) and the original, {}, were modified: compare them, then take one back with `--keep copy` or `--keep original`",
        copy.display(), path.display(), kept.display()
    )]
    Conflict {
        /// The file's path.
        path: PathBuf,
        /// Copy on the tier.
        copy: PathBuf,
        /// Original, kept next to the path.
        kept: PathBuf,
    },
    /// The copy on the tier is missing, or its contents changed although no process wrote to it.
    #[error("the copy {} of {} is damaged: {what}; {}", copy.display(), path.display(), kept_hint(kept))]
    Damaged {
        /// The file's path.
        path: PathBuf,
        /// Copy on the tier.
        copy: PathBuf,
        /// Kind of damage.
        what: String,
        /// Path of the kept original, if it exists.
        kept: Option<PathBuf>,
    },
    /// The path leads to another file.
    #[error(
        "{} {what}: the placed file at {}{} is unchanged; move the other file away and try again",
        path.display(), copy.display(), kept.as_ref().map(|kept| format!(" (original at {})", kept.display())).unwrap_or_default()
    )]
    Replaced {
        /// The file's path.
        path: PathBuf,
        /// Description of what is at the path, starting with a verb.
        what: String,
        /// Copy on the tier.
        copy: PathBuf,
        /// Original, kept next to the path.
        kept: Option<PathBuf>,
    },
    /// The path no longer exists.
    #[error(
        "{} no longer exists, but its contents are at {}: restore it with `evermap lane place back`",
        path.display(), copy.display()
    )]
    Vanished {
        /// The file's path.
        path: PathBuf,
        /// Copy on the tier.
        copy: PathBuf,
    },
    /// The file's directory is missing or was replaced.
    #[error(
        "the directory {} of {} {what}, but the contents are at {}: mount its disk or restore its name and try again; or create a new \
         directory and take the file back there with `evermap lane place back --keep copy`",
        directory.display(), path.display(), copy.display()
    )]
    DirectoryGone {
        /// The file's directory.
        directory: PathBuf,
        /// The file's path.
        path: PathBuf,
        /// State of the directory, starting with a verb.
        what: &'static str,
        /// Copy on the tier.
        copy: PathBuf,
    },
    /// The file is not placed.
    #[error("{} is not placed{}", path.display(), hint.as_ref().map(|hint| format!(": {hint}")).unwrap_or_default())]
    NotPlaced {
        /// The file.
        path: PathBuf,
        /// Hint about the likely cause.
        hint: Option<String>,
    },
    /// The file is already placed.
    #[error("{} is already placed, at {}; take it back first with `evermap lane place back`", path.display(), copy.display())]
    AlreadyPlaced {
        /// The file.
        path: PathBuf,
        /// Path of its copy.
        copy: PathBuf,
    },
    /// Another process is working on the file.
    #[error("another process is placing {} or taking it back: wait until it ends", path.display())]
    Busy {
        /// The file, or its record.
        path: PathBuf,
    },
    /// The caller cancelled the operation.
    #[error("interrupted: {} is unchanged", path.display())]
    Cancelled {
        /// The file that was being moved.
        path: PathBuf,
    },
    /// A record of the journal is invalid.
    #[error("the record {} is invalid: {what}; it was not removed", path.display())]
    Record {
        /// The record.
        path: PathBuf,
        /// Reason.
        what: String,
    },
    /// The kernel refused a private mount namespace.
    #[error("cannot create a view without private mounts: {why}")]
    NoNamespace {
        /// Reason and remedy.
        why: String,
    },
    /// A pattern is invalid, or matches too many files.
    #[error("`{pattern}`: {what}")]
    Pattern {
        /// The pattern as given.
        pattern: String,
        /// Reason.
        what: String,
    },
    /// Copying failed.
    #[error(transparent)]
    Transfer(evermap_transfer::Error),
}

impl Error {
    /// Returns a closure for `map_err` on a system call.
    pub(super) fn io<E: Into<io::Error>>(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(E) -> Self {
        move |source| Self::Io { operation, path: path.into(), source: source.into() }
    }
}

fn kept_hint(kept: &Option<PathBuf>) -> String {
    match kept {
        Some(kept) => format!(
            "the original is at {}: `evermap lane place back --keep original` puts it back",
            kept.display()
        ),
        None => "restore it from a backup, or take back the damaged copy with `evermap lane place back --keep copy`".into(),
    }
}

/// Returns the remedy for a system error, for causes that are the same for all files.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "; check that the name is right",
        io::ErrorKind::PermissionDenied => {
            "; run as a user with permission, or change the permissions"
        }
        io::ErrorKind::ReadOnlyFilesystem => "; its file system is mounted read-only",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; free space there",
        _ => "",
    }
}
