//! What becomes of files that were on their way when somebody was killed, or the power went.
//!
//! Each record is finished or rolled back by what is there, and nothing is thrown away that anybody could have written to since. Doing it again changes nothing;
//! what cannot be done now stays in the journal.

use std::io::ErrorKind;
use std::path::PathBuf;

use super::back::{KeptFound, kept_of};
use super::copy::{self, CopyState, conflict, damaged, directory_gone, replaced, vanished};
use super::journal::{Journal, KeptState, Record, State, Way};
use super::site::{At, Site};
use crate::tier::copying::Source;
use crate::tier::error::{Error, Result};
use crate::tier::slot::{Attempt, Slot};
use crate::tier::watch::{Step, Watch};

/// What was done about files that were on their way.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Recovered {
    /// They are on the tier now.
    pub placed: Vec<PathBuf>,
    /// They are where they were before.
    pub returned: Vec<PathBuf>,
    /// Another process is at them: nothing was done.
    pub busy: Vec<PathBuf>,
    /// Nothing could be done about these now; nothing is lost, and the journal still has them.
    pub left: Vec<(PathBuf, Error)>,
}

impl Recovered {
    /// Whether nothing is on its way any more.
    pub fn is_settled(&self) -> bool {
        self.busy.is_empty() && self.left.is_empty()
    }
}

/// Finishes or rolls back all that is on its way in a journal. Idempotent; files that are placed stay placed. Cost: reads the records,
/// and nothing of the files.
///
/// # Errors
///
/// [`Error::Io`] when the journal cannot be listed. What is wrong with a single file is in [`Recovered::left`].
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
            // Made, and killed before anything was written.
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
        match settle(slot, record, &Watch::default()) {
            Ok(State::Placed) => recovered.placed.push(original),
            Ok(_) => recovered.returned.push(original),
            Err(error) => recovered.left.push((original, error)),
        }
    }
    Ok(recovered)
}

/// Finishes or rolls back one. Says whether it is placed; what is not has no record any more.
pub(super) fn settle(slot: Slot, record: Record, watch: &Watch) -> Result<State> {
    let site = match open_site(&record) {
        Ok(site) => site,
        // Before there was a complete copy there is nothing to put back anywhere.
        Err(_) if record.copied.is_none() => {
            copy::remove(&record)?;
            slot.remove()?;
            return Ok(State::Returning);
        }
        Err(error) => return Err(error),
    };
    let at_path = site.at(&site.name, &record)?;
    if at_path == At::Nothing && record.copied.is_some() && site.inode != record.directory {
        return Err(directory_gone(&record, IS_ANOTHER));
    }
    match record.state {
        State::Placing => settle_going(slot, record, &site, at_path),
        State::Returning => settle_back(slot, record, &site, at_path, watch),
        State::Placed => {
            if record.kept == KeptState::Dropping {
                settle_drop(&slot, record, &site)?;
            }
            Ok(State::Placed)
        }
    }
}

/// What a directory is that has another number than that of a file that moved.
pub(super) const IS_ANOTHER: &str = "is not the one it was in";

/// Opens the directory of a file that is known.
pub(super) fn open_site(record: &Record) -> Result<Site> {
    Site::open(&record.original).map_err(|error| match error {
        Error::Io { source, .. } if source.kind() == ErrorKind::NotFound => {
            directory_gone(record, "is not there")
        }
        error => error,
    })
}

fn settle_going(slot: Slot, record: Record, site: &Site, at_path: At) -> Result<State> {
    match at_path {
        At::Link => settle_exchanged(slot, record, site),
        At::Original(_) => roll_back(slot, &record, site),
        // Nothing of value is on the tier yet, whatever became of the file.
        _ if record.copied.is_none() => roll_back(slot, &record, site),
        At::Nothing => Err(vanished(&record)),
        // Somebody gave the path to another file before the link had it: nothing ever led to the copy.
        At::Other(_) if site.at(&site.kept, &record)? == At::Link => roll_back(slot, &record, site),
        other => Err(replaced(&record, &other.what())),
    }
}

/// The path leads to the copy, and it may have been written to.
fn settle_exchanged(slot: Slot, mut record: Record, site: &Site) -> Result<State> {
    let copy = copy::look(&record)?;
    match (kept_of(site, &record)?, copy) {
        (_, CopyState::NoTier) => {
            Err(Error::TierMissing { tier: record.tier, path: record.original })
        }
        (_, CopyState::Gone) => Err(damaged(&record, "it is not there")),
        // Whoever had the original open when it went has written to it, or the path was given to another file then: that is what counts.
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

/// The path leads to the file: the link beside it, the copy and the record go.
fn roll_back(slot: Slot, record: &Record, site: &Site) -> Result<State> {
    if site.at(&site.kept, record)? == At::Link {
        site.unlink(&site.kept)?;
        site.flush()?;
    }
    let claimed = match &record.copied {
        Some(copied) => copy::claim(record, &copied.identity, None)?,
        None => None,
    };
    copy::remove(record)?;
    drop(claimed);
    slot.remove()?;
    Ok(State::Returning)
}

fn settle_back(
    slot: Slot,
    record: Record,
    site: &Site,
    at_path: At,
    watch: &Watch,
) -> Result<State> {
    let way = record.returning.as_ref().map(|returning| returning.way);
    match (at_path, way) {
        (At::Original(_), Some(Way::Exchange)) | (At::Back(_), Some(Way::Copy)) => {
            finish_return(slot, &record, site, None, watch)?;
            Ok(State::Returning)
        }
        (At::Link | At::Nothing, _) => {
            stay(&slot, record, site)?;
            Ok(State::Placed)
        }
        (other, _) => Err(replaced(&record, &other.what())),
    }
}

/// It stays on the tier, as it had not come back yet: what was made beside the path goes.
pub(super) fn stay(slot: &Slot, record: Record, site: &Site) -> Result<()> {
    if let Some(beside) = record.beside() {
        site.unlink(beside)?;
        site.flush()?;
    }
    slot.write_record(&Record { state: State::Placed, returning: None, ..record })
}

/// The path leads to the file again, durably: link, replaced original, copy and record go. `leased` is the copy, if there is a lease on it.
pub(super) fn finish_return(
    slot: Slot,
    record: &Record,
    site: &Site,
    leased: Option<Source>,
    watch: &Watch,
) -> Result<()> {
    let Some(returning) = &record.returning else { return Ok(()) };
    // Whoever was killed may have been before it was durable.
    site.flush()?;
    let replaces_kept = match (returning.way, kept_of(site, record)?) {
        (Way::Copy, KeptFound::Modified) if !returning.discards_kept => {
            return Err(conflict(record));
        }
        (Way::Copy, KeptFound::Same | KeptFound::Modified) => true,
        _ => false,
    };
    let names = [Some(site.kept.as_os_str()), record.beside()];
    for name in names.into_iter().flatten() {
        if site.at(name, record)? == At::Link {
            site.unlink(name)?;
        }
    }
    let claimed = match &returning.copy {
        Some(was) => copy::claim(record, was, leased)?,
        None => leased,
    };
    if replaces_kept {
        site.unlink(&site.kept)?;
    }
    site.flush()?;
    watch.step(&record.original, Step::Unlinked);
    copy::remove(record)?;
    drop(claimed);
    watch.step(&record.original, Step::CopyRemoved);
    slot.remove()?;
    watch.step(&record.original, Step::Returned);
    Ok(())
}

/// It was decided that the kept original goes, and whoever was at it was killed. What is still there stays, and may be dropped again: the copy was sound
/// when that was decided, and its tier may have ended since with whoever was killed.
fn settle_drop(slot: &Slot, mut record: Record, site: &Site) -> Result<()> {
    record.kept = match kept_of(site, &record)? {
        KeptFound::Same | KeptFound::Modified => KeptState::There,
        KeptFound::No | KeptFound::Another => KeptState::Dropped,
    };
    site.flush()?;
    slot.write_record(&record)
}
