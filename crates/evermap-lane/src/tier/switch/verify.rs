//! Whether switched files are where the journal says, and what they were.

use std::path::PathBuf;

use super::back::{KeptFound, kept_of};
use super::copy::{CopyState, look_and_read};
use super::journal::{Journal, KeptState, Record, State};
use super::site::{At, Site};
use crate::Placement;
use crate::tier::copying::{hash, open_to_read};
use crate::tier::error::{Error, Result};
use crate::tier::health::{Checked, Health};
use crate::tier::watch::Watch;

/// Looks at all files of a journal. Reads the copies wholly, and the kept originals.
pub(in crate::tier) fn verify(journal: &Journal, watch: &Watch) -> Result<Vec<Checked>> {
    let mut all = Vec::new();
    for path in journal.files()? {
        let checked = match path {
            Ok(path) => match journal.find_record(&path, watch) {
                Ok(Some((_slot, record))) => Some(check(&record, watch)?),
                Ok(None) => None,
                Err(error @ (Error::Record { .. } | Error::Busy { .. })) => {
                    Some(of_error(path, &error))
                }
                Err(error) => return Err(error),
            },
            Err(Error::Record { path, what }) => {
                let error = Error::Record { path: path.clone(), what };
                Some(of_error(path, &error))
            }
            Err(error) => return Err(error),
        };
        all.extend(checked);
    }
    Ok(all)
}

fn of_error(path: PathBuf, error: &Error) -> Checked {
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
    let said = |health, what: &str| Ok((health, what.to_string()));
    if record.state != State::Placed || record.kept == KeptState::Dropping {
        return said(
            Health::Unfinished,
            "it was on its way when somebody was killed: `evermap lane undo` sees to it",
        );
    }
    let Ok(site) = Site::open(&record.original) else {
        return said(Health::Replaced, "its directory is not there");
    };
    match site.at(&site.name, record)? {
        At::Link => {}
        At::Nothing => return said(Health::Replaced, "its path leads nowhere"),
        other => return said(Health::Replaced, &format!("its path {}", other.what())),
    }
    let copy = look_and_read(record, watch)?;
    let kept = match record.kept {
        KeptState::There => Some(kept_of(&site, record)?),
        _ => None,
    };
    match (copy, kept) {
        (CopyState::NoTier, _) => said(Health::TierMissing, "the tier is not there: mount it"),
        (CopyState::Gone, _) => said(Health::Damaged, "the copy is not there"),
        (CopyState::Damaged(_), _) => {
            said(Health::Damaged, "the copy's contents changed, and nobody wrote to it")
        }
        (CopyState::Modified(_), Some(KeptFound::Modified)) => {
            said(Health::Conflict, "the copy and the original were both written to")
        }
        (CopyState::Modified(_), _) => said(Health::Modified, "the copy was written to since"),
        (CopyState::Unchanged(_), Some(KeptFound::Modified)) => said(
            Health::Conflict,
            "the kept original was written to since, by whoever had it open: take it back",
        ),
        (CopyState::Unchanged(_), Some(KeptFound::No | KeptFound::Another)) => {
            said(Health::Sound, "the copy is what was put there; the original is not kept any more")
        }
        (CopyState::Unchanged(_), Some(KeptFound::Same)) => of_kept(record, &site, watch),
        (CopyState::Unchanged(_), None) => said(Health::Sound, "the copy is what was put there"),
    }
}

/// The original is the file that was kept, by its times: and by its contents.
fn of_kept(record: &Record, site: &Site, watch: &Watch) -> Result<(Health, String)> {
    let path = site.path_of(&site.kept);
    let file = open_to_read(&path).map_err(Error::io("open", &path))?;
    let is_same = record.copied.as_ref().map(|copied| &copied.hash)
        == Some(&hash(&file, &path, |_| watch.check(&path))?);
    Ok(match is_same {
        true => (Health::Sound, "the copy is what was put there, and so is the original".into()),
        false => (
            Health::Damaged,
            "the kept original's contents changed, and nobody wrote to it; the copy is sound"
                .into(),
        ),
    })
}
