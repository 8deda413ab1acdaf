//! Directory `repair-<time>` in a store, where a repair keeps copies of the files that it changes
//! and the files that it moves out of the store.
//!
//! Files keep their relative paths. The first copy of a file is kept, because it is the state
//! before the repair. Nothing is ever deleted here.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::{Error, Result};
use crate::storage::{OpenMode, Storage, copy_contents, parent_of};

/// Prefix of the directory's name.
pub(super) const PREFIX: &str = "repair-";

/// Keeps files of a store. Creates its directory for the first one.
pub(super) struct Quarantine<'a> {
    storage: Arc<dyn Storage>,
    directory: &'a Path,
    folder: Option<PathBuf>,
}

impl<'a> Quarantine<'a> {
    pub(super) fn new(storage: &Arc<dyn Storage>, directory: &'a Path) -> Quarantine<'a> {
        Quarantine { storage: Arc::clone(storage), directory, folder: None }
    }

    /// Returns the directory, or `None` if it was not created.
    pub(super) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Copies a file of the store, durably. Does nothing if the file does not exist.
    pub(super) fn copy(&mut self, file: &Path) -> Result<()> {
        let source = match self.storage.open(&self.directory.join(file), OpenMode::Read) {
            Err(e) if e.is_missing_file() => return Ok(()),
            other => other?,
        };
        let to = self.place(file)?;
        match self.storage.open(&to, OpenMode::CreateNew) {
            Ok(target) => {
                copy_contents(&*source, &*target, source.length()?)?;
                target.sync_data()?;
                self.storage.sync_directory(&parent_of(&to))
            }
            // The copy from before the first change is the one to keep.
            Err(e) if exists(&e) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Moves a file out of the store, durably. Returns false if it does not exist.
    pub(super) fn take(&mut self, file: &Path) -> Result<bool> {
        let from = self.directory.join(file);
        let to = self.place(file)?;
        match self.storage.rename(&from, &to) {
            Err(e) if e.is_missing_file() => return Ok(false),
            other => other?,
        }
        self.storage.sync_directory(&parent_of(&to))?;
        self.storage.sync_directory(&parent_of(&from))?;
        Ok(true)
    }

    /// Returns the path at which a file is kept, and creates the directories for it.
    fn place(&mut self, file: &Path) -> Result<PathBuf> {
        let folder = match &self.folder {
            Some(folder) => folder.clone(),
            None => self.folder.insert(self.make_folder()?).clone(),
        };
        let to = folder.join(file);
        let parent = parent_of(&to);
        if parent != folder {
            match self.storage.create_directory(&parent) {
                Err(e) if !exists(&e) => return Err(e),
                _ => {}
            }
        }
        Ok(to)
    }

    fn make_folder(&self) -> Result<PathBuf> {
        let stamp = stamp(SystemTime::now());
        let mut number = 1;
        loop {
            let suffix = if number == 1 { String::new() } else { format!("-{number}") };
            let folder = self.directory.join(format!("{PREFIX}{stamp}{suffix}"));
            match self.storage.create_directory(&folder) {
                Err(e) if exists(&e) => number += 1,
                Err(e) => return Err(e),
                Ok(()) => {
                    self.storage.sync_directory(self.directory)?;
                    return Ok(folder);
                }
            }
        }
    }
}

/// Returns true if the error says that a file or directory of the name exists.
pub(super) fn exists(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::AlreadyExists)
}

/// Formats a time as `20260131T235959Z`.
pub(super) fn stamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let (days, second) = ((since / 86_400) as i64, since % 86_400);
    // Civil from days, with years that begin in March, so that leap days are the last day.
    // https://howardhinnant.github.io/date_algorithms.html#civil_from_days
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{:02}Z", second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_utc_dates() {
        let at = |seconds| stamp(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "19700101T000000Z");
        assert_eq!(at(951_782_399), "20000228T235959Z");
        assert_eq!(at(951_782_400), "20000229T000000Z");
        assert_eq!(at(1_798_761_599), "20261231T235959Z");
    }
}
