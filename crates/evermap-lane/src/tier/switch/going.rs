//! A file's way to the tier.
//!
//! The order of the steps is the promise: the journal says what is going to be done before it is, the copy is complete and durable before a
//! link leads to it, and link and file change places at once. The lease keeps writers waiting as long as that takes; whoever comes all the same ends it.

use std::path::{Path, PathBuf};

use rustix::fs::{Mode, mkdir};

use super::journal::{Journal, Record, State, Vouched};
use super::lease_or_say_who;
use super::recover::settle;
use super::site::Site;
use crate::sys::lease::Kept;
use crate::tier::copying::{Source, copy_and_compare};
use crate::tier::error::{Error, Result};
use crate::tier::layout::{STAGE, switch_name};
use crate::tier::slot::{Home, Slot, flush_directory, parent};
use crate::tier::watch::{Step, Watch};

/// Moves a file. `path` is without links, and can be moved as far as a look told. Says where it is.
pub(in crate::tier) fn go(
    journal: &Journal,
    tier: &Path,
    path: &Path,
    watch: &Watch,
) -> Result<PathBuf> {
    let slot = journal.lock(path, watch)?;
    if let Some(record) = Record::read(&slot)? {
        // Left by one that was killed, or placed.
        let copy = record.copy.clone();
        match settle(slot, record, watch)? {
            State::Placed => return Err(Error::AlreadyPlaced { path: path.into(), copy }),
            _ => return go(journal, tier, path, watch),
        }
    }
    let home = Home::on_tier(tier)?;
    let source = Source::open(path)?;
    let copy = home.path.join(switch_name()?).join(path.file_name().unwrap_or_default());
    let site = Site::open(path)?;
    let record = Record::new(path.into(), site.inode, source.identity, tier.into(), copy.clone());
    slot.write_record(&record)?;
    watch.step(path, Step::Recorded);
    let mut going = Going { slot: &slot, home: &home, site: &site, record, source, watch };
    let gone = going.run();
    let Going { record, source, .. } = going;
    drop(source);
    match gone {
        Ok(()) => Ok(copy),
        Err(error) => {
            // Should it fail, the record says what is left to do, and `recover` does it.
            let _ = settle(slot, record, &Watch::default());
            Err(error)
        }
    }
}

struct Going<'a> {
    slot: &'a Slot,
    home: &'a Home,
    site: &'a Site,
    record: Record,
    source: Source,
    watch: &'a Watch,
}

impl Going<'_> {
    fn run(&mut self) -> Result<()> {
        lease_or_say_who(&mut self.source, Kept::All)?;
        self.check()?;
        self.step(Step::Leased);
        // Whoever copies opens it again: only writers are kept out meanwhile.
        lease_or_say_who(&mut self.source, Kept::Writers)?;
        self.copy()?;
        self.site.link(&self.site.kept, &self.record.copy)?;
        self.step(Step::Linked);
        self.source.check()?;
        lease_or_say_who(&mut self.source, Kept::All)?;
        self.check()?;
        self.step(Step::Closed);
        self.watch.check(&self.record.original)?;
        self.exchange()
    }

    /// The file is what it was, and where: file and directory were opened apart, and whoever may write to one above could have put others there in between.
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

    /// Makes the copy, and has the journal vouch for it.
    fn copy(&mut self) -> Result<()> {
        let directory = parent(&self.record.copy);
        mkdir(directory, Mode::from_raw_mode(0o711)).map_err(Error::io("make", directory))?;
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
        self.record.copied = Some(Vouched { hash: copied.hash, identity: named.identity });
        self.slot.write_record(&self.record)?;
        self.step(Step::Vouched);
        Ok(())
    }

    /// Link and file change places; and change back if anything is wrong after that.
    fn exchange(&self) -> Result<()> {
        let site = self.site;
        site.exchange(&site.kept, &site.name)?;
        self.step(Step::Exchanged);
        self.settle_there().inspect_err(|_| {
            // Should it fail, the record still says that it is on its way, and `recover` sees to it.
            let _ = site.exchange(&site.kept, &site.name).and_then(|()| site.flush());
        })?;
        self.step(Step::Placed);
        Ok(())
    }

    fn settle_there(&self) -> Result<()> {
        let site = self.site;
        site.flush()?;
        self.step(Step::Flushed);
        // A lease keeps nobody from giving the path to another file, as editors do that save one.
        if !site.has(&site.kept, &self.source.file)? {
            return Err(self.changed("another file has its name"));
        }
        // Somebody who came meanwhile has the original, or waits for it: the path has to lead there.
        if !self.source.is_left_alone() {
            return Err(Error::Interrupted { path: self.record.original.clone() });
        }
        self.slot.write_record(&Record { state: State::Placed, ..self.record.clone() })
    }

    fn step(&self, step: Step) {
        self.watch.step(&self.record.original, step);
    }
}

/// Renames within the copy's own directory.
fn rename_new(from: &Path, to: &Path) -> Result<()> {
    if from == to {
        return Ok(());
    }
    std::fs::rename(from, to).map_err(Error::io("name", to))
}
