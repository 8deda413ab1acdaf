//! Takes files back, and drops kept originals.
//!
//! The version written last comes back. The contents of the copy come back if only the copy was
//! modified or no original is kept; otherwise the kept original does. If both were modified, the
//! caller has to choose.

use std::ffi::OsStr;
use std::path::Path;

use super::copy::{
    CopyState, conflict, damaged, directory_gone, inspect_contents, replaced, vanished,
};
use super::journal::{Journal, KeptState, Record, Returning, State, Way};
use super::lease_or_in_use;
use super::recover::{DIRECTORY_REPLACED, finish_return, keep_placed, open_site, recover_record};
use super::site::{Entry, KeptFound, Site, kept_of};
use crate::sys::lease::LeaseKind;
use crate::tier::copying::{Source, copy_and_compare};
use crate::tier::error::{Error, Result};
use crate::tier::identity::Identity;
use crate::tier::layout::returning_name;
use crate::tier::slot::{Slot, parent};
use crate::tier::watch::{Step, Watch};

/// Choice between two files if both were modified or one is damaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// Neither: the operation fails.
    #[default]
    Neither,
    /// The copy on the tier.
    Copy,
    /// The original next to the path.
    Original,
}

/// Takes a file back. `path` is the path in the journal.
pub(crate) fn back(journal: &Journal, path: &Path, keep: Keep, watch: &Watch) -> Result<()> {
    let Some((slot, record)) = journal.find_record(path, watch)? else {
        return Err(Error::NotPlaced { path: path.into(), hint: None });
    };
    let site = open_site(&record)?;
    if record.state != State::Placed {
        // A killed process left the move unfinished.
        let leads_to_copy = site.entry(&site.name, &record)? == Entry::Link;
        return match recover_record(slot, record, watch) {
            Ok(State::Placed) => back(journal, path, keep, watch),
            Ok(_) => Ok(()),
            Err(error) if can_reset(leads_to_copy, &error, keep) => {
                reset_to_placed(journal, path, watch)?;
                back(journal, path, keep, watch)
            }
            Err(error) => Err(error),
        };
    }
    let copy = inspect_contents(&record, watch)?;
    let kept = kept_of(&site, &record)?;
    let mut returning = match site.entry(&site.name, &record)? {
        // If the disk is not mounted, the name is free in another directory.
        Entry::Nothing if site.inode != record.directory && keep != Keep::Copy => {
            return Err(directory_gone(&record, DIRECTORY_REPLACED));
        }
        Entry::Link | Entry::Nothing => decide(&record, kept, &copy, keep)?,
        Entry::Original(_) => moved_back_by_hand(&record, &copy, keep)?,
        other => return Err(replaced(&record, &other.describe())),
    };
    if returning.way == Way::Copy {
        returning.beside = Some(returning_name()?);
    }
    let discards_copy = returning.copy.is_none();
    let record = Record { state: State::Returning, returning: Some(returning), ..record };
    slot.write_record(&record)?;
    watch.step(path, Step::Returning);
    let mut moving = ReturnMove { site: &site, slot: &slot, record, watch };
    let result = moving.run(&copy, keep, discards_copy);
    let ReturnMove { record, .. } = moving;
    match result {
        Ok(source) => finish_return(slot, &record, &site, source, watch),
        Err(error) => {
            // If the file came back and the exchange could not be reverted, or this fails, the
            // record describes the remaining steps, and `recover` completes them.
            if !matches!(site.entry(&site.name, &record), Ok(Entry::Back(_)) | Err(_)) {
                let _ = keep_placed(&slot, record, &site);
            }
            Err(error)
        }
    }
}

/// Returns true if a file whose recovery failed can still be taken back: the caller has chosen
/// between two files, or only one exists.
fn can_reset(leads_to_copy: bool, error: &Error, keep: Keep) -> bool {
    match error {
        Error::Vanished { .. } => true,
        Error::Conflict { .. } | Error::Damaged { .. } => keep != Keep::Neither,
        Error::DirectoryGone { .. } => keep == Keep::Copy,
        Error::TierMissing { .. } => keep == Keep::Original && leads_to_copy,
        _ => false,
    }
}

/// Makes the path lead to the copy again, as when the file was placed. A file that came back gives
/// way only if it is the original, which is kept, or if it is unchanged since it came back.
fn reset_to_placed(journal: &Journal, path: &Path, watch: &Watch) -> Result<()> {
    let Some((slot, record)) = journal.find_record(path, watch)? else { return Ok(()) };
    let site = open_site(&record)?;
    let was = record.returning.as_ref().and_then(|returning| returning.file);
    let temporary = match site.entry(&site.name, &record)? {
        Entry::Link | Entry::Nothing => None,
        Entry::Original(_) => Some(site.kept.as_os_str()),
        Entry::Back(now) if was.is_some_and(|was| was.contents_differ(&now).is_some()) => {
            return Err(replaced(&record, "was modified after it was taken back"));
        }
        Entry::Back(_) => record.temporary_name(),
        other => return Err(replaced(&record, &other.describe())),
    };
    if let Some(temporary) = temporary {
        if site.entry(temporary, &record)? != Entry::Link {
            site.link(temporary, &record.copy)?;
        }
        site.exchange(temporary, &site.name)?;
        site.flush()?;
    }
    keep_placed(&slot, record, &site)
}

fn decide(record: &Record, kept: KeptFound, copy: &CopyState, keep: Keep) -> Result<Returning> {
    use CopyState::{Damaged, Gone, Modified, NoTier, Unchanged};
    let by = |way, copy: &Identity, discards_kept| {
        Ok(Returning { way, copy: Some(*copy), discards_kept, beside: None, file: None })
    };
    match (kept, copy, keep) {
        (KeptFound::No | KeptFound::Another, _, Keep::Original) => Err(Error::NotPlaced {
            path: record.original.clone(),
            hint: Some("its original no longer exists: omit `--keep original`".into()),
        }),
        (_, _, Keep::Original) => Ok(cleared(None)),
        (_, NoTier, _) => {
            Err(Error::TierMissing { tier: record.tier.clone(), path: record.original.clone() })
        }
        (_, Gone, _) => Err(damaged(record, "it is missing")),
        (_, Damaged(now), Keep::Copy) => by(Way::Copy, now, true),
        (_, Damaged(_), Keep::Neither) => {
            Err(damaged(record, "its contents changed although no process wrote to it"))
        }
        (KeptFound::No | KeptFound::Another, Unchanged(now) | Modified(now), _) => {
            by(Way::Copy, now, false)
        }
        (KeptFound::Modified, Unchanged(now) | Modified(now), Keep::Copy) => {
            by(Way::Copy, now, true)
        }
        (_, Unchanged(now), _) => by(Way::Exchange, now, false),
        (KeptFound::Same, Modified(now), _) => by(Way::Copy, now, false),
        (KeptFound::Modified, Modified(_), Keep::Neither) => Err(conflict(record)),
    }
}

/// Clears away the copy of an original that was moved back by hand, if nothing is lost by that.
fn moved_back_by_hand(record: &Record, copy: &CopyState, keep: Keep) -> Result<Returning> {
    match (copy, keep) {
        (_, Keep::Original) => Ok(cleared(None)),
        (CopyState::NoTier, _) => {
            Err(Error::TierMissing { tier: record.tier.clone(), path: record.original.clone() })
        }
        (CopyState::Unchanged(now), _) => Ok(cleared(Some(*now))),
        (CopyState::Gone, _) => Ok(cleared(None)),
        _ => Err(replaced(record, "is the original again, and the copy was modified")),
    }
}

/// Returns the record for an original in its place whose copy is removed: this version only, or any
/// version for `None`.
fn cleared(copy: Option<Identity>) -> Returning {
    Returning { way: Way::Exchange, copy, discards_kept: false, beside: None, file: None }
}

struct ReturnMove<'a> {
    site: &'a Site,
    slot: &'a Slot,
    record: Record,
    watch: &'a Watch,
}

impl ReturnMove<'_> {
    /// Runs all steps up to the durable exchange. Returns the copy to remove, still leased.
    fn run(&mut self, copy: &CopyState, keep: Keep, discards_copy: bool) -> Result<Option<Source>> {
        let is_there = !matches!(copy, CopyState::NoTier | CopyState::Gone);
        let mut source = is_there.then(|| Source::open(&self.record.copy)).transpose()?;
        if let Some(source) = &mut source {
            lease_or_in_use(source, LeaseKind::Write)?;
            self.check_copy(source, discards_copy)?;
        }
        self.step(Step::BackLeased);
        let temporary = self.record.temporary_name().map(OsStr::to_os_string);
        let from = match (temporary, &mut source) {
            (Some(temporary), Some(source)) => {
                self.copy_back(source, &temporary, keep)?;
                temporary
            }
            _ => self.site.kept.clone(),
        };
        if let Some(source) = &source {
            self.check_copy(source, discards_copy)?;
        }
        self.exchange(&from, source.as_ref())?;
        Ok(source)
    }

    /// Checks that the copy is unchanged since the way was chosen.
    fn check_copy(&self, source: &Source, discards_copy: bool) -> Result<()> {
        if discards_copy {
            return Ok(());
        }
        let was = self.record.returning.as_ref().and_then(|returning| returning.copy);
        match was.and_then(|was| was.differs(&source.identity)) {
            Some(what) => Err(Error::Changed { path: self.record.copy.clone(), what }),
            None => source.check(),
        }
    }

    fn copy_back(&mut self, source: &mut Source, temporary: &OsStr, keep: Keep) -> Result<()> {
        lease_or_in_use(source, LeaseKind::Read)?;
        let original = &self.record.original;
        let target = self.site.path_of_open(temporary);
        let step = || self.watch.step(original, Step::BackCopied);
        let copied = copy_and_compare(source, &target, parent(original), self.watch, step)
            .map_err(|error| self.site.with_path(error))?;
        // Rounded times do not prevent the return.
        if !copied.refused.is_empty() && keep != Keep::Copy {
            let (path, tier) = (self.record.copy.clone(), parent(original).to_path_buf());
            let what = copied.refused.join(", ");
            let instead = "`evermap lane place back --keep copy` takes it back without that";
            return Err(Error::NotKept { path, tier, what, instead });
        }
        if let Some(returning) = &mut self.record.returning {
            returning.file = Some(copied.identity);
        }
        self.slot.write_record(&self.record)?;
        self.step(Step::BackVouched);
        self.watch.check(&self.record.original)?;
        lease_or_in_use(source, LeaseKind::Write)
    }

    /// Exchanges file and link, and exchanges them back after an error.
    fn exchange(&self, from: &OsStr, source: Option<&Source>) -> Result<()> {
        let site = self.site;
        let was_there = match site.entry(&site.name, &self.record)? {
            Entry::Link => true,
            Entry::Nothing => false,
            // The original was moved back by hand.
            Entry::Original(_) if from == site.kept => return Ok(()),
            other => return Err(replaced(&self.record, &other.describe())),
        };
        match was_there {
            true => site.exchange(from, &site.name)?,
            false => site.rename_to_free(from, &site.name)?,
        }
        self.step(Step::BackExchanged);
        self.confirm_exchange(from, was_there, source).inspect_err(|_| {
            // If this fails, the record still says that the file is returning, and `recover`
            // completes it.
            let _ = match was_there {
                true => site.exchange(from, &site.name),
                false => site.rename_to_free(&site.name, from),
            };
            let _ = site.flush();
        })
    }

    fn confirm_exchange(
        &self,
        from: &OsStr,
        was_there: bool,
        source: Option<&Source>,
    ) -> Result<()> {
        let site = self.site;
        site.flush()?;
        self.step(Step::BackFlushed);
        if was_there && site.entry(from, &self.record)? != Entry::Link {
            return Err(replaced(&self.record, "was taken by another file"));
        }
        // A process that opened the path in the meantime has the copy or waits for it, so the path
        // has to lead to the copy.
        match source.is_none_or(Source::is_undisturbed) {
            true => Ok(()),
            false => Err(Error::Interrupted { path: self.record.copy.clone() }),
        }
    }

    fn step(&self, step: Step) {
        self.watch.step(&self.record.original, step);
    }
}

/// Drops the kept original of a file on the tier. After this, only the copy exists.
pub(crate) fn commit(journal: &Journal, path: &Path, watch: &Watch) -> Result<()> {
    let Some((slot, mut record)) = journal.find_record(path, watch)? else {
        return Err(Error::NotPlaced { path: path.into(), hint: None });
    };
    if record.state != State::Placed || record.kept == KeptState::Dropping {
        return match recover_record(slot, record, watch)? {
            State::Placed => commit(journal, path, watch),
            _ => Err(Error::NotPlaced { path: path.into(), hint: None }),
        };
    }
    if record.kept == KeptState::Dropped {
        return Ok(());
    }
    let site = open_site(&record)?;
    match site.entry(&site.name, &record)? {
        Entry::Link => {}
        Entry::Nothing => return Err(vanished(&record)),
        other => return Err(replaced(&record, &other.describe())),
    }
    match inspect_contents(&record, watch)? {
        CopyState::Unchanged(_) | CopyState::Modified(_) => {}
        CopyState::NoTier => {
            return Err(Error::TierMissing { tier: record.tier, path: record.original });
        }
        CopyState::Gone => return Err(damaged(&record, "it is missing")),
        CopyState::Damaged(_) => {
            return Err(damaged(&record, "its contents changed although no process wrote to it"));
        }
    }
    if kept_of(&site, &record)? == KeptFound::Modified {
        return Err(conflict(&record));
    }
    record.kept = KeptState::Dropping;
    slot.write_record(&record)?;
    watch.step(path, Step::Dropping);
    drop_kept(&slot, record, &site, watch)
}

fn drop_kept(slot: &Slot, mut record: Record, site: &Site, watch: &Watch) -> Result<()> {
    match kept_of(site, &record)? {
        KeptFound::Same => site.unlink(&site.kept)?,
        KeptFound::No | KeptFound::Another => {}
        KeptFound::Modified => {
            record.kept = KeptState::There;
            slot.write_record(&record)?;
            return Err(conflict(&record));
        }
    }
    site.flush()?;
    watch.step(&record.original, Step::Dropped);
    record.kept = KeptState::Dropped;
    slot.write_record(&record)?;
    watch.step(&record.original, Step::Committed);
    Ok(())
}
