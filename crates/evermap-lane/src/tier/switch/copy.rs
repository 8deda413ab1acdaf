//! State and removal of a switched file's copy.

use std::io::ErrorKind;
use std::path::Path;

use rustix::io::Errno;

use super::journal::{Record, VerifiedCopy};
use super::lease_or_in_use;
use crate::sys::lease::LeaseKind;
use crate::tier::copying::{Source, hash, open_to_read};
use crate::tier::error::{Error, Result};
use crate::tier::identity::Identity;
use crate::tier::layout::user_directory;
use crate::tier::slot::{PrivateDirectory, parent, remove_directory};
use crate::tier::watch::Watch;

/// State of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CopyState {
    /// This user's directory on the tier does not exist; probably the tier is not mounted.
    NoTier,
    /// The tier exists, and the copy does not.
    Gone,
    /// Unchanged since it was placed.
    Unchanged(Identity),
    /// The contents or attributes were modified.
    Modified(Identity),
    /// The contents changed although no process wrote to the file.
    Damaged(Identity),
}

/// Determines the state of the copy from its times and length.
pub(super) fn inspect(record: &Record) -> Result<CopyState> {
    inspect_with(record, |_, _| Ok(true))
}

/// Determines the state of the copy, and reads its contents if it seems unchanged.
pub(super) fn inspect_contents(record: &Record, watch: &Watch) -> Result<CopyState> {
    inspect_with(record, |file, vouched| {
        Ok(hash(file, &record.copy, |_| watch.check(&record.original))? == vouched.hash)
    })
}

fn inspect_with(
    record: &Record,
    is_sound: impl FnOnce(&rustix::fd::OwnedFd, &VerifiedCopy) -> Result<bool>,
) -> Result<CopyState> {
    if PrivateDirectory::find(&user_directory(&record.tier))?.is_none() {
        return Ok(CopyState::NoTier);
    }
    let file = match open_to_read(&record.copy) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(CopyState::Gone),
        Err(errno) => return Err(Error::io("open", &record.copy)(errno)),
    };
    let now = Identity::of(&file).map_err(Error::io("inspect", &record.copy))?;
    let Some(vouched) = &record.copied else { return Ok(CopyState::Modified(now)) };
    if vouched.identity.differs(&now).is_some() {
        return Ok(CopyState::Modified(now));
    }
    Ok(match is_sound(&file, vouched)? {
        true => CopyState::Unchanged(now),
        false => CopyState::Damaged(now),
    })
}

/// Checks that the copy may be removed: it is unchanged, and no process has it open for writing.
/// The returned lease keeps writers out. Returns `None` if there is no copy. `leased` is the copy,
/// if a lease on it is already held.
pub(super) fn lease_for_removal(
    record: &Record,
    was: &Identity,
    leased: Option<Source>,
) -> Result<Option<Source>> {
    let source = match leased {
        Some(source) if source.is_undisturbed() => source,
        Some(_) => return Err(Error::Interrupted { path: record.copy.clone() }),
        None => match Source::open(&record.copy) {
            Ok(mut source) => {
                match lease_or_in_use(&mut source, LeaseKind::Read) {
                    // The file system has no leases.
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
    let now = Identity::of(&source.file).map_err(Error::io("inspect", &record.copy))?;
    match was.differs(&now) {
        Some(_) => Err(conflict(record)),
        None => Ok(Some(source)),
    }
}

/// Removes the copy and its directory durably. Succeeds if they are gone.
pub(super) fn remove(record: &Record) -> Result<()> {
    let Some(home) = PrivateDirectory::find(&user_directory(&record.tier))? else {
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

/// Removes all files of a copy's directory. The directory belongs to one file and holds only its
/// copy and unfinished copies.
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
