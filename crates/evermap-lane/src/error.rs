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
    /// The state directory could be another's.
    #[error(
        "the state directory {} is not to be trusted: {why}; remove it, or name another one (`--state DIR`)",
        path.display()
    )]
    State {
        /// The directory, or one in it.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Another lane has the core.
    #[error(
        "core {core} has a lane already, of {holder}; wait for its end, or name another core (the claim is the lock of {})",
        path.display()
    )]
    CoreTaken {
        /// Which.
        core: u32,
        /// Its process and program.
        holder: String,
        /// Whose lock the claim is.
        path: PathBuf,
    },
}
