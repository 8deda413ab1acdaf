//! What can go wrong with a lane: the thing, the cause, the remedy.

use std::io;
use std::path::PathBuf;

/// As everywhere in this crate, but for the simulator, traces and the tier, which have errors of their own.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why there is no lane, or it ended. What was changed before is undone.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call failed.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// What was tried, as in "cannot ...".
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A policy says something that cannot be.
    #[error("{}: {what}", path.display())]
    Policy {
        /// The file.
        path: PathBuf,
        /// What is wrong, where, and what would be right.
        what: String,
    },
}
