//! Report of a tree copy.

use std::path::PathBuf;
use std::time::Duration;

use super::meter::Counts;
use crate::error::Error;
use crate::report::{EngineUse, NotKept};

/// State of the target after a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Outcome {
    /// The target is new and complete, or has all entries that could be copied.
    Published,
    /// The tree was merged into an existing target, file by file.
    Merged,
    /// The new target was removed because some entries could not be copied.
    Removed,
}

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

/// Formats a failed copy as one sentence.
impl std::fmt::Display for TreeReport {
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
