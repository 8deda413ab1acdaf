//! Recovers moves that a kill or a power failure interrupted.
//!
//! Each record is completed or rolled back according to the files found. No file is removed that
//! another process could have modified since. Recovery is idempotent; a record that cannot be
//! completed now stays in the journal.

use std::io::ErrorKind;
use std::path::PathBuf;

use super::copy::{self, CopyState, conflict, damaged, directory_gone, replaced, vanished};
use super::journal::{Journal, KeptState, Record, State, Way};
use super::site::{Entry, KeptFound, Site, kept_of};
use crate::tier::copying::Source;
use crate::tier::error::{Error, Result};
use crate::tier::slot::{Attempt, Slot};
use crate::tier::watch::{Step, Watch};

/// Result of recovering interrupted moves.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Recovered {
    /// Files that are on the tier now.
    pub placed: Vec<PathBuf>,
    /// Files that are back at their paths.
    pub returned: Vec<PathBuf>,
    /// Slots that another process holds; nothing was done.
    pub busy: Vec<PathBuf>,
    /// Files that could not be recovered now. Nothing is lost, and the journal still has them.
    pub left: Vec<(PathBuf, Error)>,
}

impl Recovered {
    /// Returns true if no interrupted moves remain.
    pub fn is_complete(&self) -> bool {
        self.busy.is_empty() && self.left.is_empty()
    }
}

/// Completes or rolls back all interrupted moves of a journal. Idempotent; placed files stay
/// placed. Reads the records, and no file contents.
///
/// # Errors
///
/// [`Error::Io`] if the journal cannot be listed. Errors of single files are in
/// [`Recovered::left`].
pub fn recover(journal: &Journal) -> Result<Recovered> {
    let mut recovered = Recovered::default();
    for name in journal.slot_names()? {
        let path = journal.path().join(&name);
        let slot = match journal.attempt(&name) {
            Ok(Attempt::Locked(slot)) => slot,
            Ok(Attempt::Absent) => continue,
            Ok(Attempt::Held) => {
                recovered.busy.push(path);
                continue;
            }
            Err(error) => {
                recovered.left.push((path, error));
                continue;
            }
        };
        let record = match Record::read(&slot) {
            Ok(Some(record)) => record,
            // A process was killed after creating the slot and before writing a record.
            Ok(None) => match slot.remove_unused() {
                Ok(()) => continue,
                Err(error) => {
                    recovered.left.push((path, error));
                    continue;
                }
            },
            Err(error) => {
                recovered.left.push((path, error));
                continue;
            }
        };
        let original = record.original.clone();
        if record.state == State::Placed && record.kept != KeptState::Dropping {
            continue;
        }
        match recover_record(slot, record, &Watch::default()) {
            Ok(State::Placed) => recovered.placed.push(original),
            Ok(_) => recovered.returned.push(original),
            Err(error) => recovered.left.push((original, error)),
        }
    }
    Ok(recovered)
}

/// Completes or rolls back one move. Returns [`State::Placed`] if the file is on the tier;
/// otherwise its record is removed.
pub(super) fn recover_record(slot: Slot, record: Record, watch: &Watch) -> Result<State> {
    let site = match open_site(&record) {
        Ok(site) => site,
        // Without a complete copy there is nothing to restore.
        Err(_) if record.copied.is_none() => {
            copy::remove(&record)?;
            slot.remove()?;
            return Ok(State::Returning);
        }
        Err(error) => return Err(error),
    };
    let path_entry = site.entry(&site.name, &record)?;
    if path_entry == Entry::Nothing && record.copied.is_some() && site.inode != record.directory {
        return Err(directory_gone(&record, DIRECTORY_REPLACED));
    }
    match record.state {
        State::Placing => recover_placing(slot, record, &site, path_entry),
        State::Returning => recover_returning(slot, record, &site, path_entry, watch),
        State::Placed => {
            if record.kept == KeptState::Dropping {
                recover_drop(&slot, record, &site)?;
            }
            Ok(State::Placed)
        }
    }
}

/// State of a directory whose inode differs from the recorded one.
pub(super) const DIRECTORY_REPLACED: &str = "was replaced by another directory";

/// Opens the directory of a recorded file.
pub(super) fn open_site(record: &Record) -> Result<Site> {
    Site::open(&record.original).map_err(|error| match error {
        Error::Io { source, .. } if source.kind() == ErrorKind::NotFound => {
            directory_gone(record, "does not exist")
        }
        error => error,
    })
}

fn recover_placing(slot: Slot, record: Record, site: &Site, path_entry: Entry) -> Result<State> {
    match path_entry {
        Entry::Link => recover_exchanged(slot, record, site),
        Entry::Original(_) => roll_back(slot, &record, site),
        // Without a complete copy, the tier has nothing of value, whatever happened to the file.
        _ if record.copied.is_none() => roll_back(slot, &record, site),
        Entry::Nothing => Err(vanished(&record)),
        // Another file took the path before the exchange, so the path never led to the copy.
        Entry::Other(_) if site.entry(&site.kept, &record)? == Entry::Link => {
            roll_back(slot, &record, site)
        }
        other => Err(replaced(&record, &other.describe())),
    }
}

/// Recovers a move whose link was exchanged: the path leads to the copy, which may have been
/// modified.
fn recover_exchanged(slot: Slot, mut record: Record, site: &Site) -> Result<State> {
    let copy = copy::inspect(&record)?;
    match (kept_of(site, &record)?, copy) {
        (_, CopyState::NoTier) => {
            Err(Error::TierMissing { tier: record.tier, path: record.original })
        }
        (_, CopyState::Gone) => Err(damaged(&record, "it is not there")),
        // A process that had the original open modified it, or another file took the path before
        // the exchange. That file has priority.
        (KeptFound::Modified | KeptFound::Another, CopyState::Unchanged(_)) => {
            site.exchange(&site.kept, &site.name)?;
            site.flush()?;
            roll_back(slot, &record, site)
        }
        (KeptFound::Modified | KeptFound::Another, _) => Err(conflict(&record)),
        (kept, _) => {
            if kept == KeptFound::No {
                record.kept = KeptState::Dropped;
            }
            site.flush()?;
            record.state = State::Placed;
            slot.write_record(&record)?;
            Ok(State::Placed)
        }
    }
}

/// Removes the link next to the file, the copy and the record. The path leads to the file.
fn roll_back(slot: Slot, record: &Record, site: &Site) -> Result<State> {
    if site.entry(&site.kept, record)? == Entry::Link {
        site.unlink(&site.kept)?;
        site.flush()?;
    }
    let leased_copy = match &record.copied {
        Some(copied) => copy::lease_for_removal(record, &copied.identity, None)?,
        None => None,
    };
    copy::remove(record)?;
    drop(leased_copy);
    slot.remove()?;
    Ok(State::Returning)
}

fn recover_returning(
    slot: Slot,
    record: Record,
    site: &Site,
    path_entry: Entry,
    watch: &Watch,
) -> Result<State> {
    let way = record.returning.as_ref().map(|returning| returning.way);
    match (path_entry, way) {
        (Entry::Original(_), Some(Way::Exchange)) | (Entry::Back(_), Some(Way::Copy)) => {
            finish_return(slot, &record, site, None, watch)?;
            Ok(State::Returning)
        }
        (Entry::Link | Entry::Nothing, _) => {
            keep_placed(&slot, record, site)?;
            Ok(State::Placed)
        }
        (other, _) => Err(replaced(&record, &other.describe())),
    }
}

/// Marks the file as placed, because it had not come back. Removes the returning file next to the
/// path.
pub(super) fn keep_placed(slot: &Slot, record: Record, site: &Site) -> Result<()> {
    if let Some(temporary) = record.temporary_name() {
        site.unlink(temporary)?;
        site.flush()?;
    }
    slot.write_record(&Record { state: State::Placed, returning: None, ..record })
}

/// Completes a return: the path leads to the file durably, so the link, a replaced original, the
/// copy and the record are removed. `leased` is the copy, if a lease on it is held.
pub(super) fn finish_return(
    slot: Slot,
    record: &Record,
    site: &Site,
    leased: Option<Source>,
    watch: &Watch,
) -> Result<()> {
    let Some(returning) = &record.returning else { return Ok(()) };
    // The killed process may not have flushed the exchange.
    site.flush()?;
    let replaces_kept = match (returning.way, kept_of(site, record)?) {
        (Way::Copy, KeptFound::Modified) if !returning.discards_kept => {
            return Err(conflict(record));
        }
        (Way::Copy, KeptFound::Same | KeptFound::Modified) => true,
        _ => false,
    };
    let names = [Some(site.kept.as_os_str()), record.temporary_name()];
    for name in names.into_iter().flatten() {
        if site.entry(name, record)? == Entry::Link {
            site.unlink(name)?;
        }
    }
    let leased_copy = match &returning.copy {
        Some(was) => copy::lease_for_removal(record, was, leased)?,
        None => leased,
    };
    if replaces_kept {
        site.unlink(&site.kept)?;
    }
    site.flush()?;
    watch.step(&record.original, Step::Unlinked);
    copy::remove(record)?;
    drop(leased_copy);
    watch.step(&record.original, Step::CopyRemoved);
    slot.remove()?;
    watch.step(&record.original, Step::Returned);
    Ok(())
}

/// Recovers a drop of the kept original. If the original still exists it stays and can be dropped
/// again: the copy was sound when the drop began, but the tier may have failed together with the
/// killed process.
fn recover_drop(slot: &Slot, mut record: Record, site: &Site) -> Result<()> {
    record.kept = match kept_of(site, &record)? {
        KeptFound::Same | KeptFound::Modified => KeptState::There,
        KeptFound::No | KeptFound::Another => KeptState::Dropped,
    };
    site.flush()?;
    slot.write_record(&record)
}
