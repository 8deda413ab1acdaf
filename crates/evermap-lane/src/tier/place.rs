//! Operations on placed files: place, take back, commit, sweep and verify.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::copies::{self, State};
use super::error::{Error, Result};
use super::health::{Checked, Health};
use super::path_text;
use super::plan::Plan;
use super::switch::{self, Journal, Keep};
use super::view::{Shown, View};
use super::watch::Watch;
use crate::Placement;

/// File on the tier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Placed {
    /// Path without symbolic links.
    #[serde(with = "path_text")]
    pub path: PathBuf,
    /// Path of its contents now.
    #[serde(with = "path_text")]
    pub copy: PathBuf,
    /// True if the tier already had a current copy.
    pub was_there: bool,
    /// Attributes that a view's copy lacks, in words.
    pub not_kept: Option<String>,
}

/// Result of placing a plan.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Applied {
    /// Files on the tier now.
    pub placed: Vec<Placed>,
    /// Planned files that could not be placed. Nothing of them remains on the tier.
    pub failed: Vec<(PathBuf, Error)>,
    shown: Vec<Shown>,
}

impl Applied {
    /// Returns the view of the placed files. Empty in mode `switch`, in which all programs see the
    /// tier's files.
    pub fn view(&self) -> View {
        View { shown: self.shown.clone() }
    }
}

/// Places the files of a plan, one after the other. A failure does not stop the remaining files,
/// except for cancellation and an unsafe directory.
///
/// Mode `view` reuses current copies and first removes stale ones. Mode `switch` needs a journal.
///
/// # Errors
///
/// [`Error::NotLasting`] for mode `switch` on a tier that is not persistent;
/// [`Error::UnsafeDirectory`]; [`Error::Cancelled`]. Files placed before the error stay placed.
/// Errors of single files are in [`Applied::failed`].
pub fn place(plan: &Plan, journal: Option<&Journal>, watch: &Watch) -> Result<Applied> {
    let tier = &plan.tier.path;
    let mut applied = Applied::default();
    match (plan.mode, &plan.tier.not_lasting) {
        (Placement::Switch, Some(why)) => {
            return Err(Error::NotLasting { tier: tier.clone(), why: why.clone() });
        }
        (Placement::Switch, None) => {}
        (Placement::View, _) => drop(copies::sweep(tier)?),
    }
    for file in &plan.files {
        watch.check(&file.path)?;
        let placed = match (plan.mode, journal) {
            (Placement::View, _) => copies::make(tier, &file.path, watch).map(|made| {
                let copy = made.shown.copy.clone();
                applied.shown.push(made.shown);
                (copy, made.was_there, made.not_kept)
            }),
            (Placement::Switch, Some(journal)) => {
                switch::place(journal, tier, &file.path, watch).map(|copy| (copy, false, None))
            }
            (Placement::Switch, None) => {
                let what = "switching a file needs a journal".into();
                Err(Error::Record { path: file.path.clone(), what })
            }
        };
        match placed {
            Ok((copy, was_there, not_kept)) => {
                applied.placed.push(Placed { path: file.path.clone(), copy, was_there, not_kept });
            }
            Err(error @ (Error::Cancelled { .. } | Error::UnsafeDirectory { .. })) => {
                return Err(error);
            }
            Err(error) => applied.failed.push((file.path.clone(), error)),
        }
    }
    Ok(applied)
}

/// Returns the path of the current copy of a file: its view copy on this tier, or the file that it
/// was switched to. Returns `None` if there is no copy or the file has changed since. Opens both
/// files.
pub fn placed_path(tier: &Path, original: &Path) -> Option<PathBuf> {
    let path = std::fs::canonicalize(original).ok()?;
    let tier = std::fs::canonicalize(tier).ok()?;
    match path.starts_with(super::layout::user_directory(&tier)) {
        true => Some(path),
        false => copies::find(&tier, &path),
    }
}

/// Returns the files that have view copies on a tier.
///
/// # Errors
///
/// [`Error::Io`], [`Error::UnsafeDirectory`].
pub fn views(tier: &Path) -> Result<Vec<PathBuf>> {
    copies::files(&canonical(tier)?)
}

/// Takes a file back. A switched file returns to its path. A view's copy is removed from the tier;
/// processes that have it open or mounted keep it until they end.
///
/// # Errors
///
/// [`Error::NotPlaced`]. For a switched file also [`Error::InUse`], [`Error::Interrupted`],
/// [`Error::Conflict`], [`Error::Damaged`], [`Error::Replaced`], [`Error::TierMissing`],
/// [`Error::TierFull`] (for the original disk) and [`Error::Cancelled`]. The file then stays where
/// it was, and nothing is lost.
pub fn back(
    journal: Option<&Journal>,
    tier: Option<&Path>,
    path: &Path,
    keep: Keep,
    watch: &Watch,
) -> Result<()> {
    if let Some(journal) = journal
        && let Some(known) = switch::known_path(journal, path, watch)?
    {
        return switch::back(journal, &known, keep, watch);
    }
    let hint = match tier {
        Some(tier) => {
            // The file may be gone and still have a copy.
            let known = std::fs::canonicalize(path).or_else(|_| std::path::absolute(path));
            let known = known.map_err(Error::io("find", path))?;
            if copies::remove(&canonical(tier)?, &known, watch)? {
                return Ok(());
            }
            format!("it is neither switched nor copied to {}", tier.display())
        }
        None => "name the tier if it was placed in mode `view`".into(),
    };
    Err(Error::NotPlaced { path: path.into(), hint: Some(hint) })
}

/// Drops the kept original of a switched file. First reads the copy and checks that it is unchanged
/// or was modified by a writer. After this, only the tier has the file.
///
/// # Errors
///
/// Same errors as [`back`].
pub fn commit(journal: &Journal, path: &Path, watch: &Watch) -> Result<()> {
    match switch::known_path(journal, path, watch)? {
        Some(known) => switch::commit(journal, &known, watch),
        None => Err(Error::NotPlaced { path: path.into(), hint: None }),
    }
}

/// Removes view copies whose files have changed or are gone, and the remains of killed processes.
/// Returns the files of the removed copies.
///
/// # Errors
///
/// [`Error::Io`], [`Error::UnsafeDirectory`].
pub fn sweep(tier: &Path) -> Result<Vec<PathBuf>> {
    copies::sweep(&canonical(tier)?)
}

/// Checks all files that a journal has switched and all view copies on a tier. Reads all copies and
/// kept originals.
///
/// # Errors
///
/// [`Error::Io`], [`Error::UnsafeDirectory`], [`Error::Cancelled`].
pub fn verify(
    journal: Option<&Journal>,
    tier: Option<&Path>,
    watch: &Watch,
) -> Result<Vec<Checked>> {
    let mut all = journal.map_or(Ok(Vec::new()), |journal| switch::verify(journal, watch))?;
    let Some(tier) = tier else { return Ok(all) };
    for (path, copy, state) in copies::verify(&canonical(tier)?, watch)? {
        let (health, what) = match state {
            State::Sound => (Health::Sound, "the copy matches the file".into()),
            State::Stale(what) => (Health::Stale, what),
            State::Damaged(what) => (Health::Damaged, what),
        };
        all.push(Checked { path, copy: Some(copy), mode: Placement::View, health, what });
    }
    Ok(all)
}

fn canonical(tier: &Path) -> Result<PathBuf> {
    std::fs::canonicalize(tier).map_err(Error::io("find the tier", tier))
}
