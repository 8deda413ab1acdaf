//! Results of checking placed files.

use std::path::PathBuf;

use serde::Serialize;

use super::path_text;
use crate::Placement;

/// Result of checking one placed file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Checked {
    /// The file, or the path of an unreadable record.
    #[serde(with = "path_text")]
    pub path: PathBuf,
    /// Path of its copy.
    #[serde(serialize_with = "optional_path")]
    pub copy: Option<PathBuf>,
    /// Mode in which it was placed.
    pub mode: Placement,
    /// Result of the check.
    pub health: Health,
    /// Result in words.
    pub what: String,
}

/// State of a placed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Health {
    /// The copy is unchanged since it was placed.
    Sound,
    /// The file of a view's copy has changed. The copy is no longer shown and is replaced at the
    /// next placement.
    Stale,
    /// The copy was modified through the link, as intended.
    Modified,
    /// A move did not finish.
    Unfinished,
    /// The tier is not mounted.
    TierMissing,
    /// Another file has the path.
    Replaced,
    /// Both the copy and the original were modified.
    Conflict,
    /// The contents changed although no process wrote to them.
    Damaged,
}

impl Health {
    /// Returns true if the user has to act.
    pub fn is_bad(self) -> bool {
        !matches!(self, Self::Sound | Self::Stale | Self::Modified)
    }
}

fn optional_path<S: serde::Serializer>(
    path: &Option<PathBuf>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match path {
        Some(path) => path_text::serialize(path, serializer),
        None => serializer.serialize_none(),
    }
}
