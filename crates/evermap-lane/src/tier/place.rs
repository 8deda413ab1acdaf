//! The verbs: place what was planned, take it back, look whether it is what it should be.

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

/// A file that is on the tier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Placed {
    /// Without links.
    #[serde(with = "path_text")]
    pub path: PathBuf,
    /// Where its contents are now.
    #[serde(with = "path_text")]
    pub copy: PathBuf,
    /// A current copy was there already.
    pub was_there: bool,
    /// Attributes that a view's copy has not, in words.
    pub not_kept: Option<String>,
}

/// What became of a plan.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Applied {
    /// What is on the tier now.
    pub placed: Vec<Placed>,
    /// What is not, though it was planned. Nothing of it is left on the tier.
    pub failed: Vec<(PathBuf, Error)>,
    shown: Vec<Shown>,
}

impl Applied {
    /// What a program is to see; nothing in mode `switch`, where all see it.
    pub fn view(&self) -> View {
        View { shown: self.shown.clone() }
    }
}

/// Places what a plan says, one file after the other. One that cannot be placed keeps the others from nothing, as long as nobody cancels
/// it and the tier has room.
///
/// In mode `view` copies that are there and current are used again, and those of no use any more are removed first. In mode
/// `switch` a journal is needed.
///
/// # Errors
///
/// [`Error::NotLasting`] for mode `switch` on a tier that would not keep the files; [`Error::UnsafeDirectory`]; [`Error::Cancelled`]: what
/// was placed before stays. What is wrong with a single file is in [`Applied::failed`].
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
                switch::go(journal, tier, &file.path, watch).map(|copy| (copy, false, None))
            }
            (Placement::Switch, None) => {
                let what = "files are switched with a journal only".into();
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

/// Where the current copy of a file is: on this tier for views, or where it was switched to; none if there is none, or if the
/// file has changed since. Cost: opens both.
pub fn placed_path(tier: &Path, original: &Path) -> Option<PathBuf> {
    let path = std::fs::canonicalize(original).ok()?;
    let tier = std::fs::canonicalize(tier).ok()?;
    match path.starts_with(super::layout::home_of(&tier)) {
        true => Some(path),
        false => copies::find(&tier, &path),
    }
}

/// The files of which there are copies for views on a tier.
///
/// # Errors
///
/// [`Error::Io`], [`Error::UnsafeDirectory`].
pub fn views(tier: &Path) -> Result<Vec<PathBuf>> {
    copies::files(&canonical(tier)?)
}

/// Takes a file back: to its path, if it was switched; a view's copy is removed from the tier. Whoever has that open or shown keeps it until they
/// end.
///
/// # Errors
///
/// [`Error::NotPlaced`]; of a switched file [`Error::InUse`], [`Error::Interrupted`], [`Error::Conflict`], [`Error::Damaged`],
/// [`Error::Replaced`], [`Error::TierMissing`], [`Error::TierFull`] (of its own disk), [`Error::Cancelled`]: it is where it was then, and
/// nothing is lost.
pub fn back(
    journal: Option<&Journal>,
    tier: Option<&Path>,
    path: &Path,
    keep: Keep,
    watch: &Watch,
) -> Result<()> {
    if let Some(journal) = journal
        && let Some(known) = switch::path_in(journal, path, watch)?
    {
        return switch::back(journal, &known, keep, watch);
    }
    let hint = match tier {
        Some(tier) => {
            // Of a file that is gone there may be a copy still.
            let known = std::fs::canonicalize(path).or_else(|_| std::path::absolute(path));
            let known = known.map_err(Error::io("find", path))?;
            if copies::remove(&canonical(tier)?, &known, watch)? {
                return Ok(());
            }
            format!("neither switched nor copied to {}", tier.display())
        }
        None => "name the tier, if it was placed in mode `view`".into(),
    };
    Err(Error::NotPlaced { path: path.into(), hint: Some(hint) })
}

/// Drops the kept original of a switched file, after the copy was read and found to be what was put there or written to since. Then
/// only the tier has the file.
///
/// # Errors
///
/// As [`back`].
pub fn commit(journal: &Journal, path: &Path, watch: &Watch) -> Result<()> {
    match switch::path_in(journal, path, watch)? {
        Some(known) => switch::commit(journal, &known, watch),
        None => Err(Error::NotPlaced { path: path.into(), hint: None }),
    }
}

/// Removes copies for views whose files have changed or are gone, and what killed processes have left of copies. Says of which files.
///
/// # Errors
///
/// [`Error::Io`], [`Error::UnsafeDirectory`].
pub fn sweep(tier: &Path) -> Result<Vec<PathBuf>> {
    copies::sweep(&canonical(tier)?)
}

/// Looks at all that a journal has switched and all copies for views on a tier. Cost: reads all copies, and the kept originals.
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
            State::Sound => (Health::Sound, "the copy is what the file is".into()),
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
