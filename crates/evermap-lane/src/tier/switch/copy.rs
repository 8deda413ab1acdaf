//! The copy of a switched file: what became of it, and how it is removed.

use std::io::ErrorKind;
use std::path::Path;

use rustix::io::Errno;

use super::journal::{Record, Vouched};
use super::lease_or_say_who;
use crate::sys::lease::Kept;
use crate::tier::copying::{Source, hash, open_to_read};
use crate::tier::error::{Error, Result};
use crate::tier::identity::Identity;
use crate::tier::layout::home_of;
use crate::tier::slot::{Home, parent, remove_directory};
use crate::tier::watch::Watch;

/// What became of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CopyState {
    /// This user's directory on the tier is not there: the tier is not mounted, most likely.
    NoTier,
    /// The tier is there, and the copy is not.
    Gone,
    /// As it was put there.
    Unchanged(Identity),
    /// Written to since, or its attributes were.
    Modified(Identity),
    /// Its contents are others, and nobody has written to it.
    Damaged(Identity),
}

/// Looks at the copy, by its times and its length.
pub(super) fn look(record: &Record) -> Result<CopyState> {
    look_with(record, |_, _| Ok(true))
}

/// Looks at the copy, and reads what would be taken for unchanged.
pub(super) fn look_and_read(record: &Record, watch: &Watch) -> Result<CopyState> {
    look_with(record, |file, vouched| {
        Ok(hash(file, &record.copy, |_| watch.check(&record.original))? == vouched.hash)
    })
}

fn look_with(
    record: &Record,
    is_sound: impl FnOnce(&rustix::fd::OwnedFd, &Vouched) -> Result<bool>,
) -> Result<CopyState> {
    if Home::find(&home_of(&record.tier))?.is_none() {
        return Ok(CopyState::NoTier);
    }
    let file = match open_to_read(&record.copy) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(CopyState::Gone),
        Err(errno) => return Err(Error::io("open", &record.copy)(errno)),
    };
    let now = Identity::of(&file).map_err(Error::io("look at", &record.copy))?;
    let Some(vouched) = &record.copied else { return Ok(CopyState::Modified(now)) };
    if vouched.identity.differs(&now).is_some() {
        return Ok(CopyState::Modified(now));
    }
    Ok(match is_sound(&file, vouched)? {
        true => CopyState::Unchanged(now),
        false => CopyState::Damaged(now),
    })
}

/// Makes sure that the copy may be removed: it is still what it was, and nobody has it open to write to it, which goes on for as long as what this
/// gives is there. None without a copy. `leased` is the copy, if there is a lease on it.
pub(super) fn claim(
    record: &Record,
    was: &Identity,
    leased: Option<Source>,
) -> Result<Option<Source>> {
    let source = match leased {
        Some(source) if source.is_left_alone() => source,
        Some(_) => return Err(Error::Interrupted { path: record.copy.clone() }),
        None => match Source::open(&record.copy) {
            Ok(mut source) => {
                match lease_or_say_who(&mut source, Kept::Writers) {
                    // A file system without leases.
                    Ok(()) | Err(Error::Io { .. }) => source,
                    Err(error) => return Err(error),
                }
            }
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        },
    };
    let now = Identity::of(&source.file).map_err(Error::io("look at", &record.copy))?;
    match was.differs(&now) {
        Some(_) => Err(conflict(record)),
        None => Ok(Some(source)),
    }
}

/// Removes the copy with its directory, durably; no error if it is gone.
pub(super) fn remove(record: &Record) -> Result<()> {
    let Some(home) = Home::find(&home_of(&record.tier))? else {
        return Err(Error::TierMissing {
            tier: record.tier.clone(),
            path: record.original.clone(),
        });
    };
    let directory = parent(&record.copy);
    remove_files(directory)?;
    remove_directory(directory)?;
    home.flush()
}

/// The directory is this file's alone: besides the copy it has at most unfinished ones.
fn remove_files(directory: &Path) -> Result<()> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::io("list", directory)(error)),
    };
    for entry in entries {
        let path = entry.map_err(Error::io("list", directory))?.path();
        std::fs::remove_file(&path).map_err(Error::io("remove", &path))?;
    }
    Ok(())
}

pub(super) fn conflict(record: &Record) -> Error {
    let kept = record.kept_path().unwrap_or_else(|| record.original.clone());
    Error::Conflict { path: record.original.clone(), copy: record.copy.clone(), kept }
}

pub(super) fn damaged(record: &Record, what: &str) -> Error {
    Error::Damaged {
        path: record.original.clone(),
        copy: record.copy.clone(),
        what: what.into(),
        kept: record.kept_path(),
    }
}

pub(super) fn replaced(record: &Record, what: &str) -> Error {
    Error::Replaced {
        path: record.original.clone(),
        what: what.into(),
        copy: record.copy.clone(),
        kept: record.kept_path(),
    }
}

pub(super) fn directory_gone(record: &Record, what: &'static str) -> Error {
    Error::DirectoryGone {
        directory: parent(&record.original).to_path_buf(),
        path: record.original.clone(),
        what,
        copy: record.copy.clone(),
    }
}

pub(super) fn vanished(record: &Record) -> Error {
    Error::Vanished { path: record.original.clone(), copy: record.copy.clone() }
}
