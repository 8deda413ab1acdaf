//! What looking at placed files comes to.

use std::path::PathBuf;

use serde::Serialize;

use super::path_text;
use crate::Placement;

/// A placed file, and whether it is what it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Checked {
    /// The file; or the record that does not say which.
    #[serde(with = "path_text")]
    pub path: PathBuf,
    /// Where its copy is.
    #[serde(serialize_with = "optional_path")]
    pub copy: Option<PathBuf>,
    /// How it was placed.
    pub mode: Placement,
    /// What it comes to.
    pub health: Health,
    /// The same in words.
    pub what: String,
}

/// What a placed file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Health {
    /// What was put there.
    Sound,
    /// A view's copy whose file has changed since: it is not shown any more, and made anew the next time.
    Stale,
    /// The copy was written to through the link. As it should be.
    Modified,
    /// On its way.
    Unfinished,
    /// The tier is not mounted.
    TierMissing,
    /// Something else has its path.
    Replaced,
    /// Two files were written to that should be one.
    Conflict,
    /// It is not what was put there.
    Damaged,
}

impl Health {
    /// Whether somebody has to do something.
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
