//! Error type of the tools that rewrite stores and objects: rebase, export and import.
//!
//! Tools that only read or copy return the store's [`enum@crate::Error`]. Every variant here names
//! the file or the object that it concerns, and `Display` ends with the remedy.

use std::path::PathBuf;

/// An error of a rebase, an export or an import.
///
/// ```
/// let refused = evermap::tools::undo_rebase("/nonexistent/store", false).unwrap_err();
/// assert!(matches!(refused, evermap::tools::Error::Store(evermap::Error::NoStore { .. })));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error that other calls can return, too.
    #[error(transparent)]
    Store(#[from] crate::Error),
    /// The requested base address of a store is invalid.
    #[error("no store can be at {base:#x}: {why}; name another address, or none")]
    BadBase {
        /// The address.
        base: u64,
        /// Cause.
        why: String,
    },
    /// There is no rebase to undo.
    #[error("store {} has no pre-rebase files to restore; they are kept in its directory as `rebase-<time>` until deleted", path.display())]
    NothingKept {
        /// The store's directory.
        path: PathBuf,
    },
    /// Undoing the rebase would lose later commits.
    #[error("store {} has changed since its rebase: {what}; undo the rebase with force, which loses these changes, or keep the store as it is", path.display())]
    ChangedSince {
        /// The store's directory.
        path: PathBuf,
        /// The change.
        what: String,
    },
    /// An object to be exported has pointers to objects that are not exported.
    #[error(
        "object `{object}` has {count} pointers to {to} (the first at {first}); export that object too and import both, or export it with force: those pointers are then invalid"
    )]
    PointsElsewhere {
        /// The object's name.
        object: String,
        /// Number of pointers.
        count: u64,
        /// The objects they lead to.
        to: String,
        /// Path of the first pointer.
        first: String,
    },
    /// The file to import is not a complete export.
    #[error("{} is not a complete export of an object: found {found}, expected {expected}; export the object again", path.display())]
    BadExport {
        /// The file.
        path: PathBuf,
        /// Content found.
        found: String,
        /// Content expected.
        expected: String,
    },
}

/// `Result` with the tools' [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
