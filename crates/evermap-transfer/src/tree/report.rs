//! What a copy of a tree says about itself.

use std::path::PathBuf;
use std::time::Duration;

use super::meter::Counts;
use crate::error::Error;
use crate::report::{EngineUse, NotKept};

/// What became of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Outcome {
    /// The target is new, and was given its name when all was in it.
    Published,
    /// The target was there, and the tree was merged into it, file by file.
    Merged,
    /// The target was to be new; nothing of it is left, as some could not be copied.
    Removed,
}

/// What was copied, what was not, and what that took.
#[derive(Debug)]
pub struct TreeReport {
    /// The tree that was copied, as named.
    pub source: PathBuf,
    /// Its copy, as named.
    pub target: PathBuf,
    /// What became of it.
    pub outcome: Outcome,
    /// What was copied. Of an [`Outcome::Removed`] target, what had been when it was given up.
    pub counts: Counts,
    /// What moved the bytes.
    pub engines: Vec<EngineUse>,
    /// What the target's file system or this user's rights refused, the first [`super::TreeOptions::listed_max`] of it.
    pub not_kept: Vec<NotKept>,
    /// How much of that there is, listed or not.
    pub not_kept_total: u64,
    /// What could not be copied, the first [`super::TreeOptions::listed_max`] of it.
    pub errors: Vec<Error>,
    /// How much of that there is, listed or not.
    pub errors_total: u64,
    /// From the first call to the last.
    pub wall: Duration,
    /// Processor time, user and system, of all threads of the copy.
    pub cpu: Duration,
    /// How many those were.
    pub threads: usize,
}

/// In a sentence, for those who asked for all or nothing.
impl std::fmt::Display for TreeReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let target = self.target.display();
        let things = if self.errors_total == 1 {
            "1 thing".to_string()
        } else {
            format!("{} things", self.errors_total)
        };
        write!(f, "{things} in {} could not be copied", self.source.display())?;
        if let Some(first) = self.errors.first() {
            write!(f, ", first: {first}")?;
        }
        match self.outcome {
            Outcome::Published => write!(f, "; {target} has the rest"),
            Outcome::Merged => write!(f, "; what was copied to {target} before stays there"),
            Outcome::Removed => write!(
                f,
                "; {target} was not made: remedy that and copy again, or ask for what can be had (keep going)"
            ),
        }
    }
}
