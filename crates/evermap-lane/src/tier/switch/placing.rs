//! Moves a file to the tier.
//!
//! The order of the steps makes the move safe. The journal records each step before it begins. The
//! copy is complete and durable before a link leads to it. Link and file exchange their names
//! atomically. Leases make other processes wait: writers during the copy, all others during the
//! exchange. A process that waits ends the move.

use std::path::{Path, PathBuf};

use rustix::fs::{Mode, mkdir};

use super::journal::{Journal, Record, State, VerifiedCopy};
use super::lease_or_in_use;
use super::recover::recover_record;
use super::site::Site;
use crate::sys::lease::LeaseKind;
use crate::tier::copying::{Source, copy_and_compare};
use crate::tier::error::{Error, Result};
use crate::tier::layout::{STAGE, switch_name};
use crate::tier::slot::{PrivateDirectory, Slot, flush_directory, parent};
use crate::tier::watch::{Step, Watch};

/// Moves a file, and returns the path of its copy. `path` has no symbolic links and passed the
/// checks of a plan.
pub(in crate::tier) fn place(
    journal: &Journal,
    tier: &Path,
    path: &Path,
    watch: &Watch,
) -> Result<PathBuf> {
    let slot = journal.lock(path, watch)?;
    if let Some(record) = Record::read(&slot)? {
        // A record left by a killed process, or of a placed file.
        let copy = record.copy.clone();
        match recover_record(slot, record, watch)? {
            State::Placed => return Err(Error::AlreadyPlaced { path: path.into(), copy }),
            _ => return place(journal, tier, path, watch),
        }
    }
    let home = PrivateDirectory::on_tier(tier)?;
    let source = Source::open(path)?;
    let copy = home.path.join(switch_name()?).join(path.file_name().unwrap_or_default());
    let site = Site::open(path)?;
    let record = Record::new(path.into(), site.inode, source.identity, tier.into(), copy.clone());
    slot.write_record(&record)?;
    watch.step(path, Step::Recorded);
    let mut moving = PlaceMove { slot: &slot, home: &home, site: &site, record, source, watch };
    let result = moving.run();
    let PlaceMove { record, source, .. } = moving;
    drop(source);
    match result {
        Ok(()) => Ok(copy),
        Err(error) => {
            // If this fails, the record describes the remaining steps, and `recover` completes
            // them.
            let _ = recover_record(slot, record, &Watch::default());
            Err(error)
        }
    }
}

struct PlaceMove<'a> {
    slot: &'a Slot,
    home: &'a PrivateDirectory,
    site: &'a Site,
    record: Record,
    source: Source,
    watch: &'a Watch,
}

impl PlaceMove<'_> {
    fn run(&mut self) -> Result<()> {
        lease_or_in_use(&mut self.source, LeaseKind::Write)?;
        self.check()?;
        self.step(Step::Leased);
        // Copying opens the file again, so only writers are kept out from here.
        lease_or_in_use(&mut self.source, LeaseKind::Read)?;
        self.copy()?;
        self.site.link(&self.site.kept, &self.record.copy)?;
        self.step(Step::Linked);
        self.source.check()?;
        lease_or_in_use(&mut self.source, LeaseKind::Write)?;
        self.check()?;
        self.step(Step::Closed);
        self.watch.check(&self.record.original)?;
        self.exchange()
    }

    /// Checks that the file is unchanged and in its place. File and directory were opened
    /// separately: a user that can write to a parent directory could have replaced either in
    /// between.
    fn check(&self) -> Result<()> {
        self.source.check()?;
        if !self.site.is_where_it_was()? {
            return Err(self.changed("its directory was renamed or replaced"));
        }
        match self.site.has(&self.site.name, &self.source.file)? {
            true => Ok(()),
            false => Err(self.changed("another file has its name")),
        }
    }

    fn changed(&self, what: &str) -> Error {
        Error::Changed { path: self.record.original.clone(), what: what.into() }
    }

    /// Creates the copy, and records its identity in the journal.
    fn copy(&mut self) -> Result<()> {
        let directory = parent(&self.record.copy);
        mkdir(directory, Mode::from_raw_mode(0o711)).map_err(Error::io("create", directory))?;
        self.home.flush()?;
        flush_directory(&self.record.tier)?;
        let stage = directory.join(STAGE);
        let step = |step| self.watch.step(&self.record.original, step);
        let copied = copy_and_compare(&self.source, &stage, &self.record.tier, self.watch, || {
            step(Step::Copied);
        })?;
        if let Some(what) = copied.not_kept() {
            let (path, tier) = (self.record.original.clone(), self.record.tier.clone());
            let instead = "use mode `view`, or a tier whose file system has that";
            return Err(Error::NotKept { path, tier, what, instead });
        }
        step(Step::Hashed);
        rename_new(&stage, &self.record.copy)?;
        flush_directory(directory)?;
        step(Step::Named);
        let named = Source::open(&self.record.copy)?;
        self.record.copied = Some(VerifiedCopy { hash: copied.hash, identity: named.identity });
        self.slot.write_record(&self.record)?;
        self.step(Step::Vouched);
        Ok(())
    }

    /// Exchanges link and file, and exchanges them back after an error.
    fn exchange(&self) -> Result<()> {
        let site = self.site;
        site.exchange(&site.kept, &site.name)?;
        self.step(Step::Exchanged);
        self.confirm_exchange().inspect_err(|_| {
            // If this fails, the record still says that the file is being placed, and `recover`
            // completes it.
            let _ = site.exchange(&site.kept, &site.name).and_then(|()| site.flush());
        })?;
        self.step(Step::Placed);
        Ok(())
    }

    fn confirm_exchange(&self) -> Result<()> {
        let site = self.site;
        site.flush()?;
        self.step(Step::Flushed);
        // A lease does not prevent renames. An editor may save by renaming another file to this
        // path.
        if !site.has(&site.kept, &self.source.file)? {
            return Err(self.changed("another file has its name"));
        }
        // A process that opened the path in the meantime has the original or waits for it, so the
        // path has to lead to the original.
        if !self.source.is_undisturbed() {
            return Err(Error::Interrupted { path: self.record.original.clone() });
        }
        self.slot.write_record(&Record { state: State::Placed, ..self.record.clone() })
    }

    fn step(&self, step: Step) {
        self.watch.step(&self.record.original, step);
    }
}

/// Renames within the directory of the copy.
fn rename_new(from: &Path, to: &Path) -> Result<()> {
    if from == to {
        return Ok(());
    }
    std::fs::rename(from, to).map_err(Error::io("rename", to))
}
