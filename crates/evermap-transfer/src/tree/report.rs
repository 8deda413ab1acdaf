//! Report of a tree copy.

use std::path::PathBuf;
use std::time::Duration;

use crate::error::{Error, IncompleteTree};
use crate::report::{EngineUse, NotKept};
use crate::tally::{Counts, Outcome};

/// Result of a tree copy.
#[derive(Debug)]
pub struct TreeReport {
    /// The source, as given.
    pub source: PathBuf,
    /// The target, as given.
    pub target: PathBuf,
    /// State of the target.
    pub outcome: Outcome,
    /// Entries copied. If the target was [`Outcome::Removed`], entries copied before that.
    pub counts: Counts,
    /// Engines used.
    pub engines: Vec<EngineUse>,
    /// Attributes not preserved, up to [`super::TreeOptions::listed_max`].
    pub not_kept: Vec<NotKept>,
    /// Number of attributes not preserved, listed or not.
    pub not_kept_total: u64,
    /// Errors, up to [`super::TreeOptions::listed_max`].
    pub errors: Vec<Error>,
    /// Number of errors, listed or not.
    pub errors_total: u64,
    /// Wall time.
    pub wall: Duration,
    /// Processor time of all threads of the copy, user and system.
    pub cpu: Duration,
    /// Number of threads.
    pub threads: usize,
}

impl TreeReport {
    /// Keeps what describes a failed copy.
    pub(super) fn into_incomplete(self) -> IncompleteTree {
        let TreeReport { source, target, outcome, errors, errors_total, .. } = self;
        IncompleteTree { source, target, outcome, errors, errors_total }
    }
}
