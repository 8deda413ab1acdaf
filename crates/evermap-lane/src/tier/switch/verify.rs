//! Checks that switched files are where the journal says, and unchanged.

use std::path::PathBuf;

use super::copy::{CopyState, inspect_contents};
use super::journal::{Journal, KeptState, Record, State};
use super::site::{Entry, KeptFound, Site, kept_of};
use crate::Placement;
use crate::tier::copying::{hash, open_to_read};
use crate::tier::error::{Error, Result};
use crate::tier::health::{Checked, Health};
use crate::tier::watch::Watch;

/// Checks all files of a journal. Reads the copies and the kept originals completely.
pub(in crate::tier) fn verify(journal: &Journal, watch: &Watch) -> Result<Vec<Checked>> {
    let mut all = Vec::new();
    for path in journal.files()? {
        let checked = match path {
            Ok(path) => match journal.find_record(&path, watch) {
                Ok(Some((_slot, record))) => Some(check(&record, watch)?),
                Ok(None) => None,
                Err(error @ (Error::Record { .. } | Error::Busy { .. })) => {
                    Some(checked_error(path, &error))
                }
                Err(error) => return Err(error),
            },
            Err(Error::Record { path, what }) => {
                let error = Error::Record { path: path.clone(), what };
                Some(checked_error(path, &error))
            }
            Err(error) => return Err(error),
        };
        all.extend(checked);
    }
    Ok(all)
}

fn checked_error(path: PathBuf, error: &Error) -> Checked {
    let health = match error {
        Error::Busy { .. } => Health::Unfinished,
        _ => Health::Damaged,
    };
    Checked { copy: None, mode: Placement::Switch, health, what: error.to_string(), path }
}

fn check(record: &Record, watch: &Watch) -> Result<Checked> {
    let (health, what) = health_of(record, watch)?;
    Ok(Checked {
        path: record.original.clone(),
        copy: Some(record.copy.clone()),
        mode: Placement::Switch,
        health,
        what,
    })
}

fn health_of(record: &Record, watch: &Watch) -> Result<(Health, String)> {
    let found = |health, what: &str| Ok((health, what.to_string()));
    if record.state != State::Placed || record.kept == KeptState::Dropping {
        return found(
            Health::Unfinished,
            "its move was interrupted: complete it with `evermap lane undo`",
        );
    }
    let Ok(site) = Site::open(&record.original) else {
        return found(Health::Replaced, "its directory does not exist");
    };
    match site.entry(&site.name, record)? {
        Entry::Link => {}
        Entry::Nothing => return found(Health::Replaced, "its path does not exist"),
        other => return found(Health::Replaced, &format!("its path {}", other.describe())),
    }
    let copy = inspect_contents(record, watch)?;
    let kept = match record.kept {
        KeptState::There => Some(kept_of(&site, record)?),
        _ => None,
    };
    match (copy, kept) {
        (CopyState::NoTier, _) => found(Health::TierMissing, "the tier is not available: mount it"),
        (CopyState::Gone, _) => found(Health::Damaged, "the copy is missing"),
        (CopyState::Damaged(_), _) => {
            found(Health::Damaged, "the copy's contents changed although no process wrote to it")
        }
        (CopyState::Modified(_), Some(KeptFound::Modified)) => {
            found(Health::Conflict, "the copy and the original were both modified")
        }
        (CopyState::Modified(_), _) => found(Health::Modified, "the copy was modified"),
        (CopyState::Unchanged(_), Some(KeptFound::Modified)) => found(
            Health::Conflict,
            "the kept original was modified by a process that had it open: take the file back",
        ),
        (CopyState::Unchanged(_), Some(KeptFound::No | KeptFound::Another)) => {
            found(Health::Sound, "the copy is unchanged; the original is no longer kept")
        }
        (CopyState::Unchanged(_), Some(KeptFound::Same)) => check_kept(record, &site, watch),
        (CopyState::Unchanged(_), None) => found(Health::Sound, "the copy is unchanged"),
    }
}

/// Checks the contents of an original that is unchanged by its times.
fn check_kept(record: &Record, site: &Site, watch: &Watch) -> Result<(Health, String)> {
    let path = site.path_of(&site.kept);
    let file = open_to_read(&path).map_err(Error::io("open", &path))?;
    let is_same = record.copied.as_ref().map(|copied| &copied.hash)
        == Some(&hash(&file, &path, |_| watch.check(&path))?);
    Ok(match is_same {
        true => (Health::Sound, "the copy and the original are unchanged".into()),
        false => (
            Health::Damaged,
            "the kept original's contents changed although no process wrote to it; the copy is sound"
                .into(),
        ),
    })
}
