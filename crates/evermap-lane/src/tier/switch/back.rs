//! A file's way back, and the end of its kept original.
//!
//! What comes back is what was written last: the kept original if only that was written to or nothing was, the copy's contents
//! if that was. Where both were, whoever asks has to say.

use std::ffi::OsStr;
use std::path::Path;

use super::copy::{
    CopyState, conflict, damaged, directory_gone, look_and_read, replaced, vanished,
};
use super::journal::{Journal, KeptState, Record, Returning, State, Way};
use super::lease_or_say_who;
use super::recover::{IS_ANOTHER, finish_return, open_site, settle, stay};
use super::site::{At, Site};
use crate::sys::lease::Kept;
use crate::tier::copying::{Source, copy_and_compare};
use crate::tier::error::{Error, Result};
use crate::tier::identity::Identity;
use crate::tier::layout::returning_name;
use crate::tier::slot::{Slot, parent};
use crate::tier::watch::{Step, Watch};

/// Which of two files is to be had where that is not clear: both were written to, or one is damaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// Neither: it is an error.
    #[default]
    Neither,
    /// What is on the tier.
    Copy,
    /// What is kept beside the path.
    Original,
}

/// Brings a file back. `path` is as the journal has it.
pub(in crate::tier) fn back(
    journal: &Journal,
    path: &Path,
    keep: Keep,
    watch: &Watch,
) -> Result<()> {
    let Some((slot, record)) = journal.find_record(path, watch)? else {
        return Err(Error::NotPlaced { path: path.into(), hint: None });
    };
    let site = open_site(&record)?;
    if record.state != State::Placed {
        // Left by one that was killed.
        let leads_to_copy = site.at(&site.name, &record)? == At::Link;
        return match settle(slot, record, watch) {
            Ok(State::Placed) => back(journal, path, keep, watch),
            Ok(_) => Ok(()),
            Err(error) if may_begin_anew(leads_to_copy, &error, keep) => {
                begin_anew(journal, path, watch)?;
                back(journal, path, keep, watch)
            }
            Err(error) => Err(error),
        };
    }
    let copy = look_and_read(&record, watch)?;
    let kept = kept_of(&site, &record)?;
    let mut returning = match site.at(&site.name, &record)? {
        // Of a disk that is not mounted nothing is in the way either.
        At::Nothing if site.inode != record.directory && keep != Keep::Copy => {
            return Err(directory_gone(&record, IS_ANOTHER));
        }
        At::Link | At::Nothing => decide(&record, kept, &copy, keep)?,
        At::Original(_) => moved_back_by_hand(&record, &copy, keep)?,
        other => return Err(replaced(&record, &other.what())),
    };
    if returning.way == Way::Copy {
        returning.beside = Some(returning_name()?);
    }
    let discards_copy = returning.copy.is_none();
    let record = Record { state: State::Returning, returning: Some(returning), ..record };
    slot.write_record(&record)?;
    watch.step(path, Step::Returning);
    let mut coming = Coming { site: &site, slot: &slot, record, watch };
    let gone = coming.run(&copy, keep, discards_copy);
    let Coming { record, .. } = coming;
    match gone {
        Ok(source) => finish_return(slot, &record, &site, source, watch),
        Err(error) => {
            // Where the file came back and could not be sent away again, or this fails, the record says what is left to do, and `recover` does it.
            if !matches!(site.at(&site.name, &record), Ok(At::Back(_)) | Err(_)) {
                let _ = stay(&slot, record, &site);
            }
            Err(error)
        }
    }
}

/// Whether a file that was on its way, and cannot be settled, comes back all the same: as it is said which of two is to be had, or as there is
/// only one.
fn may_begin_anew(leads_to_copy: bool, error: &Error, keep: Keep) -> bool {
    match error {
        Error::Vanished { .. } => true,
        Error::Conflict { .. } | Error::Damaged { .. } => keep != Keep::Neither,
        Error::DirectoryGone { .. } => keep == Keep::Copy,
        Error::TierMissing { .. } => keep == Keep::Original && leads_to_copy,
        _ => false,
    }
}

/// Has the path lead to the copy again, as when the file was placed. What came back and goes for that is the original, which is kept, or what the copy was before
/// it was written to.
fn begin_anew(journal: &Journal, path: &Path, watch: &Watch) -> Result<()> {
    let Some((slot, record)) = journal.find_record(path, watch)? else { return Ok(()) };
    let site = open_site(&record)?;
    let was = record.returning.as_ref().and_then(|returning| returning.file);
    let beside = match site.at(&site.name, &record)? {
        At::Link | At::Nothing => None,
        At::Original(_) => Some(site.kept.as_os_str()),
        At::Back(now) if was.is_some_and(|was| was.contents_differ(&now).is_some()) => {
            return Err(replaced(&record, "was written to since it came back"));
        }
        At::Back(_) => record.beside(),
        other => return Err(replaced(&record, &other.what())),
    };
    if let Some(beside) = beside {
        if site.at(beside, &record)? != At::Link {
            site.link(beside, &record.copy)?;
        }
        site.exchange(beside, &site.name)?;
        site.flush()?;
    }
    stay(&slot, record, &site)
}

/// What became of the kept original.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeptFound {
    No,
    Same,
    Modified,
    /// Another file has its name.
    Another,
}

pub(super) fn kept_of(site: &Site, record: &Record) -> Result<KeptFound> {
    Ok(match site.at(&site.kept, record)? {
        At::Original(now) => match record.identity.contents_differ(&now) {
            None => KeptFound::Same,
            Some(_) => KeptFound::Modified,
        },
        At::Nothing | At::Link => KeptFound::No,
        At::Back(_) | At::Other(_) => KeptFound::Another,
    })
}

fn decide(record: &Record, kept: KeptFound, copy: &CopyState, keep: Keep) -> Result<Returning> {
    use CopyState::{Damaged, Gone, Modified, NoTier, Unchanged};
    let by = |way, copy: &Identity, discards_kept| {
        Ok(Returning { way, copy: Some(*copy), discards_kept, beside: None, file: None })
    };
    match (kept, copy, keep) {
        (KeptFound::No | KeptFound::Another, _, Keep::Original) => Err(Error::NotPlaced {
            path: record.original.clone(),
            hint: Some("its original is not there any more: leave `--keep original` out".into()),
        }),
        (_, _, Keep::Original) => Ok(cleared(None)),
        (_, NoTier, _) => {
            Err(Error::TierMissing { tier: record.tier.clone(), path: record.original.clone() })
        }
        (_, Gone, _) => Err(damaged(record, "it is not there")),
        (_, Damaged(now), Keep::Copy) => by(Way::Copy, now, true),
        (_, Damaged(_), Keep::Neither) => {
            Err(damaged(record, "its contents changed, and nobody wrote to it"))
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

/// The original has its path again: what is left is to be cleared away, if nothing is lost by that.
fn moved_back_by_hand(record: &Record, copy: &CopyState, keep: Keep) -> Result<Returning> {
    match (copy, keep) {
        (_, Keep::Original) => Ok(cleared(None)),
        (CopyState::NoTier, _) => {
            Err(Error::TierMissing { tier: record.tier.clone(), path: record.original.clone() })
        }
        (CopyState::Unchanged(now), _) => Ok(cleared(Some(*now))),
        (CopyState::Gone, _) => Ok(cleared(None)),
        _ => Err(replaced(record, "is the original again, and the copy was written to")),
    }
}

/// The original has its path, and the copy goes: only if it is still this, or whatever it is.
fn cleared(copy: Option<Identity>) -> Returning {
    Returning { way: Way::Exchange, copy, discards_kept: false, beside: None, file: None }
}

struct Coming<'a> {
    site: &'a Site,
    slot: &'a Slot,
    record: Record,
    watch: &'a Watch,
}

impl Coming<'_> {
    /// All until the path leads to the file again, durably. Gives back the copy that is to be removed, still leased.
    fn run(&mut self, copy: &CopyState, keep: Keep, discards_copy: bool) -> Result<Option<Source>> {
        let is_there = !matches!(copy, CopyState::NoTier | CopyState::Gone);
        let mut source = is_there.then(|| Source::open(&self.record.copy)).transpose()?;
        if let Some(source) = &mut source {
            lease_or_say_who(source, Kept::All)?;
            self.check_copy(source, discards_copy)?;
        }
        self.step(Step::BackLeased);
        let beside = self.record.beside().map(OsStr::to_os_string);
        let from = match (beside, &mut source) {
            (Some(beside), Some(source)) => {
                self.copy_back(source, &beside, keep)?;
                beside
            }
            _ => self.site.kept.clone(),
        };
        if let Some(source) = &source {
            self.check_copy(source, discards_copy)?;
        }
        self.exchange(&from, source.as_ref())?;
        Ok(source)
    }

    /// The copy is still what was decided about.
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

    fn copy_back(&mut self, source: &mut Source, beside: &OsStr, keep: Keep) -> Result<()> {
        lease_or_say_who(source, Kept::Writers)?;
        let original = &self.record.original;
        let target = self.site.path_of_open(beside);
        let step = || self.watch.step(original, Step::BackCopied);
        let copied = copy_and_compare(source, &target, parent(original), self.watch, step)
            .map_err(|error| self.site.with_path(error))?;
        // That a disk rounds times keeps no file from it.
        if !copied.refused.is_empty() && keep != Keep::Copy {
            let (path, tier) = (self.record.copy.clone(), parent(original).to_path_buf());
            let what = copied.refused.join(", ");
            let instead = "`evermap lane place back --keep copy` brings it without";
            return Err(Error::NotKept { path, tier, what, instead });
        }
        if let Some(returning) = &mut self.record.returning {
            returning.file = Some(copied.identity);
        }
        self.slot.write_record(&self.record)?;
        self.step(Step::BackVouched);
        self.watch.check(&self.record.original)?;
        lease_or_say_who(source, Kept::All)
    }

    /// File and link change places; and change back if anything is wrong after that.
    fn exchange(&self, from: &OsStr, source: Option<&Source>) -> Result<()> {
        let site = self.site;
        let was_there = match site.at(&site.name, &self.record)? {
            At::Link => true,
            At::Nothing => false,
            // Moved back by hand.
            At::Original(_) if from == site.kept => return Ok(()),
            other => return Err(replaced(&self.record, &other.what())),
        };
        match was_there {
            true => site.exchange(from, &site.name)?,
            false => site.rename_to_free(from, &site.name)?,
        }
        self.step(Step::BackExchanged);
        self.settle_there(from, was_there, source).inspect_err(|_| {
            // Should it fail, the record still says that it is on its way, and `recover` sees to it.
            let _ = match was_there {
                true => site.exchange(from, &site.name),
                false => site.rename_to_free(&site.name, from),
            };
            let _ = site.flush();
        })
    }

    fn settle_there(&self, from: &OsStr, was_there: bool, source: Option<&Source>) -> Result<()> {
        let site = self.site;
        site.flush()?;
        self.step(Step::BackFlushed);
        if was_there && site.at(from, &self.record)? != At::Link {
            return Err(replaced(&self.record, "was given to another file"));
        }
        // Somebody who came meanwhile has the copy, or waits for it: the path has to lead there.
        match source.is_none_or(Source::is_left_alone) {
            true => Ok(()),
            false => Err(Error::Interrupted { path: self.record.copy.clone() }),
        }
    }

    fn step(&self, step: Step) {
        self.watch.step(&self.record.original, step);
    }
}

/// Drops the kept original of a file that is on the tier: after this only the copy is there.
pub(in crate::tier) fn commit(journal: &Journal, path: &Path, watch: &Watch) -> Result<()> {
    let Some((slot, mut record)) = journal.find_record(path, watch)? else {
        return Err(Error::NotPlaced { path: path.into(), hint: None });
    };
    if record.state != State::Placed || record.kept == KeptState::Dropping {
        return match settle(slot, record, watch)? {
            State::Placed => commit(journal, path, watch),
            _ => Err(Error::NotPlaced { path: path.into(), hint: None }),
        };
    }
    if record.kept == KeptState::Dropped {
        return Ok(());
    }
    let site = open_site(&record)?;
    match site.at(&site.name, &record)? {
        At::Link => {}
        At::Nothing => return Err(vanished(&record)),
        other => return Err(replaced(&record, &other.what())),
    }
    match look_and_read(&record, watch)? {
        CopyState::Unchanged(_) | CopyState::Modified(_) => {}
        CopyState::NoTier => {
            return Err(Error::TierMissing { tier: record.tier, path: record.original });
        }
        CopyState::Gone => return Err(damaged(&record, "it is not there")),
        CopyState::Damaged(_) => {
            return Err(damaged(&record, "its contents changed, and nobody wrote to it"));
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
