//! A file's way back, and the end of its kept original.
//!
//! What comes back is what was written last: the kept original if only that was written to or nothing was, the copy's contents
//! if that was. Where both were, whoever asks has to say.

use std::path::Path;

use super::copy::{CopyState, conflict, damaged, look_and_read, replaced, vanished};
use super::journal::{Journal, KeptState, Record, Returning, State, Way};
use super::lease_or_say_who;
use super::recover::{finish_return, open_site, settle};
use super::site::{At, Site};
use crate::sys::lease::Kept;
use crate::tier::copying::{Source, copy_and_compare};
use crate::tier::error::{Error, Result};
use crate::tier::identity::Identity;
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
    let Some((slot, mut record)) = journal.find_record(path, watch)? else {
        return Err(Error::NotPlaced { path: path.into(), hint: None });
    };
    let site = open_site(&record)?;
    if record.state != State::Placed {
        // Left by one that was killed.
        if record.copied.is_none() || site.at(&site.name, &record)? != At::Nothing {
            return match settle(slot, record, watch)? {
                State::Placed => back(journal, path, keep, watch),
                _ => Ok(()),
            };
        }
        // The file was removed on its way: it is had from where it is.
        record.state = State::Placed;
        record.returning = None;
    }
    let copy = look_and_read(&record, watch)?;
    let kept = kept_of(&site, &record)?;
    let returning = match site.at(&site.name, &record)? {
        At::Link | At::Nothing => decide(&record, kept, &copy, keep)?,
        At::Original(_) => moved_back_by_hand(&record, &copy, keep)?,
        At::Back => return Err(replaced(&record, "is another file now")),
        At::Other(what) => return Err(replaced(&record, &what)),
    };
    let discards_copy = returning.copy.is_none();
    let record = Record { state: State::Returning, returning: Some(returning), ..record };
    slot.write_record(&record)?;
    watch.step(path, Step::Returning);
    let mut coming = Coming { site: &site, slot: &slot, record, watch };
    let source = match coming.run(&copy, keep, discards_copy) {
        Ok(source) => source,
        Err(error) => {
            // Should it fail, the record says what is left to do, and `recover` does it.
            let Coming { record, .. } = coming;
            let _ = settle(slot, record, &Watch::default());
            return Err(error);
        }
    };
    let Coming { record, .. } = coming;
    finish_return(slot, &record, &site, watch)?;
    drop(source);
    Ok(())
}

/// What became of the kept original.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeptFound {
    No,
    Same,
    Modified,
}

pub(super) fn kept_of(site: &Site, record: &Record) -> Result<KeptFound> {
    Ok(match site.at(&site.kept, record)? {
        At::Original(now) => match record.identity.contents_differ(&now) {
            None => KeptFound::Same,
            Some(_) => KeptFound::Modified,
        },
        _ => KeptFound::No,
    })
}

fn decide(record: &Record, kept: KeptFound, copy: &CopyState, keep: Keep) -> Result<Returning> {
    use CopyState::{Damaged, Gone, Modified, NoTier, Unchanged};
    let by = |way, copy: &Identity, discards_kept| {
        Ok(Returning { way, copy: Some(*copy), discards_kept, file: None })
    };
    match (kept, copy, keep) {
        (KeptFound::No, _, Keep::Original) => Err(Error::NotPlaced {
            path: record.original.clone(),
            hint: Some("its original is not there any more: leave `--keep original` out".into()),
        }),
        (_, _, Keep::Original) => {
            Ok(Returning { way: Way::Exchange, copy: None, discards_kept: false, file: None })
        }
        (_, NoTier, _) => {
            Err(Error::TierMissing { tier: record.tier.clone(), path: record.original.clone() })
        }
        (_, Gone, _) => Err(damaged(record, "it is not there")),
        (_, Damaged(now), Keep::Copy) => by(Way::Copy, now, true),
        (_, Damaged(_), Keep::Neither) => {
            Err(damaged(record, "its contents changed, and nobody wrote to it"))
        }
        (KeptFound::No, Unchanged(now) | Modified(now), _) => by(Way::Copy, now, false),
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
    let returning = |copy| Returning { way: Way::Exchange, copy, discards_kept: false, file: None };
    match (copy, keep) {
        (_, Keep::Original) => Ok(returning(None)),
        (CopyState::NoTier, _) => {
            Err(Error::TierMissing { tier: record.tier.clone(), path: record.original.clone() })
        }
        (CopyState::Unchanged(now), _) => Ok(returning(Some(*now))),
        (CopyState::Gone, _) => Ok(returning(None)),
        _ => Err(replaced(record, "is the original again, and the copy was written to")),
    }
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
        let way = self.record.returning.as_ref().map(|returning| returning.way);
        let from = match (way, &mut source) {
            (Some(Way::Copy), Some(source)) => {
                self.copy_back(source, keep)?;
                self.site.back.clone()
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

    fn copy_back(&mut self, source: &mut Source, keep: Keep) -> Result<()> {
        lease_or_say_who(source, Kept::Writers)?;
        let original = &self.record.original;
        let back = self.site.path_of(&self.site.back);
        let step = || self.watch.step(original, Step::BackCopied);
        let copied = copy_and_compare(source, &back, parent(original), self.watch, step)?;
        if let (Some(what), false) = (copied.not_kept, keep == Keep::Copy) {
            let (path, tier) = (self.record.copy.clone(), parent(original).to_path_buf());
            return Err(Error::NotKept { path, tier, what });
        }
        if let Some(returning) = &mut self.record.returning {
            returning.file = Some(copied.identity);
        }
        self.slot.write_record(&self.record)?;
        self.step(Step::BackVouched);
        self.watch.check(&self.record.original)?;
        lease_or_say_who(source, Kept::All)
    }

    fn exchange(&self, from: &std::ffi::OsStr, source: Option<&Source>) -> Result<()> {
        let site = self.site;
        // By the kind alone: nothing may be opened here, which would end a lease of ours.
        let is_link = std::fs::symlink_metadata(site.path_of(&site.name));
        let was_there = match is_link {
            Ok(found) if found.is_symlink() => true,
            // Moved back by hand.
            Ok(_) if !site.path_of(from).is_file() || site.path_of(from).is_symlink() => {
                return Ok(());
            }
            Ok(_) => return Err(replaced(&self.record, "is another file now")),
            Err(_) => false,
        };
        match was_there {
            true => site.exchange(from, &site.name)?,
            false => site.rename_to_free(from, &site.name)?,
        }
        self.step(Step::BackExchanged);
        site.flush()?;
        self.step(Step::BackFlushed);
        // Somebody who came meanwhile has the copy, or waits for it: the path has to lead there.
        if source.is_some_and(|source| !source.is_left_alone()) {
            match was_there {
                true => site.exchange(from, &site.name)?,
                false => site.rename_to_free(&site.name, from)?,
            }
            site.flush()?;
            return Err(Error::Interrupted { path: self.record.copy.clone() });
        }
        Ok(())
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
        At::Original(_) | At::Back => return Err(replaced(&record, "is the file again")),
        At::Other(what) => return Err(replaced(&record, &what)),
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
    super::recover::finish_drop(&slot, record, &site, watch)
}
