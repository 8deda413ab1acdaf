//! An object file that was opened and checked once, for mapping it again and again.
//!
//! What a reader finds out when it opens an object is a function of page 0, of the file's length
//! and of its name, as long as no log is needed. So nothing of it has to be found out again while
//! these are, bit for bit, what they were. Of the data nothing is kept: each snapshot is a mapping
//! of the file as it is then, under the same lock as any reader's. Between snapshots no lock is
//! held, so that a writer finds no reader in its way. The lock is on an open file of the snapshots
//! alone, which a forked child has as long as it has one of them.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{CONTENT_BYTE, Displacement, Writes};
use crate::address::{AddressSpace, Mapping, Sharing};
use crate::error::Result;
use crate::format::{PAGE_BYTES, Superblock};
use crate::storage::{File, FileState, LockKind, OpenMode, Storage};

/// A file that holds all of a commit, with the superblock that was checked.
#[derive(Debug)]
pub(crate) struct ReadyObject {
    file: Arc<dyn File>,
    superblock: Box<Superblock>,
    /// From before page 0 was compared.
    state: FileState,
    /// The open file that snapshots lock the content through, while there are any.
    locked: Mutex<Option<Weak<dyn File>>>,
}

/// A snapshot of a ready object.
#[derive(Debug)]
pub(crate) struct ReadySnapshot {
    // Unmapped before the content is unlocked.
    mappings: Vec<Mapping>,
    _locked: Arc<dyn File>,
    object: Arc<ReadyObject>,
}

impl ReadyObject {
    /// The object whose superblock was read from `path` and checked; `None` where the file does not
    /// hold this commit, or not alone: a log is needed with it.
    pub(crate) fn open(
        storage: &dyn Storage,
        path: &Path,
        superblock: &Superblock,
    ) -> Result<Option<ReadyObject>> {
        if superblock.needs_log() != Some(false) {
            return Ok(None);
        }
        let file = storage.open(path, OpenMode::Read)?;
        let state = file.state()?;
        let superblock = Box::new(*superblock);
        let ready = ReadyObject { file, superblock, state, locked: Mutex::default() };
        Ok((ready.is_named() && ready.has_page_0()?).then_some(ready))
    }

    /// As it was checked.
    pub(crate) fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Has the file a name still? One that has not is kept for nothing.
    pub(crate) fn has_a_name(&self) -> bool {
        self.file.has_a_name().unwrap_or(false)
    }

    /// Maps the object's last commit; `None` where that may be another one by now, or is not to be
    /// had from the file alone. Waits for nobody.
    ///
    /// Five system calls, and one more for each region after the first.
    pub(crate) fn map(
        self: &Arc<Self>,
        space: &Arc<AddressSpace>,
        here: Displacement,
        writes: Writes,
    ) -> Result<Option<ReadySnapshot>> {
        let Some(locked) = self.lock_content()? else { return Ok(None) };
        // Under the lock: from here on nobody changes the pages that the file has.
        if !self.is_as_it_was()? {
            return Ok(None);
        }
        let sharing = match writes {
            Writes::Fault => Sharing::ReadOnly,
            Writes::Private => Sharing::PrivateCopy,
        };
        let regions = self.superblock.regions();
        let mut mappings = Vec::with_capacity(regions.len());
        for region in regions {
            let base = here.to_here(region.base);
            let mapping = space.claim(base, region.capacity)?;
            mapping.map(&*locked, base, region.length, region.file_offset, sharing)?;
            mappings.push(mapping);
        }
        Ok(Some(ReadySnapshot { mappings, _locked: locked, object: Arc::clone(self) }))
    }

    fn is_named(&self) -> bool {
        self.state.named && self.state.length >= self.superblock.file_length
    }

    /// The same file state and the same page 0: what was checked then is right now.
    ///
    /// The time alone would not do, for the kernel's clock is coarse; page 0 alone neither: it does
    /// not know of a file that was cut short, or moved away to make room for another.
    fn is_as_it_was(&self) -> Result<bool> {
        Ok(self.file.state()? == self.state && self.has_page_0()?)
    }

    fn has_page_0(&self) -> Result<bool> {
        let mut page = [0; PAGE_BYTES as usize];
        let got = self.file.read_at(&mut page, 0)?;
        let known = bytemuck::bytes_of(&*self.superblock);
        Ok(got == known.len() && page == *known)
    }

    /// The open file that has the content locked; `None` while a writer applies commits that the file
    /// lacks. The lock ends with the last process that has the file open or mapped.
    fn lock_content(&self) -> Result<Option<Arc<dyn File>>> {
        let mut locked = self.locked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = locked.as_ref().and_then(Weak::upgrade) {
            return Ok(Some(file));
        }
        let file = self.file.again()?;
        file.leave_locks_to_children();
        if !file.try_lock(LockKind::Shared, CONTENT_BYTE, 1)? {
            return Ok(None);
        }
        *locked = Some(Arc::downgrade(&file));
        Ok(Some(file))
    }
}

impl ReadySnapshot {
    /// The commit's superblock.
    pub(crate) fn superblock(&self) -> &Superblock {
        &self.object.superblock
    }

    /// What is mapped, a mapping a region.
    pub(crate) fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::object::peek;
    use crate::object::superblock::blank;
    use crate::storage::Disk;

    /// A file with the object's page 0, and some more.
    fn file(length: u64) -> (tempfile::TempDir, std::fs::File, ReadyObject) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("object");
        let mut options = std::fs::OpenOptions::new();
        let written = options.read(true).write(true).create_new(true).open(&path).unwrap();
        let superblock = Superblock { arena_base: PAGE_BYTES, arena_length: PAGE_BYTES, ..blank() };
        written.write_all_at(bytemuck::bytes_of(&superblock), 0).unwrap();
        written.set_len(length).unwrap();
        let superblock = peek(&*Disk::default().open(&path, OpenMode::Read).unwrap()).unwrap();
        let ready = ReadyObject::open(&Disk::default(), &path, &superblock).unwrap().unwrap();
        (directory, written, ready)
    }

    #[test]
    fn every_byte_of_page_0_is_compared_whatever_the_time_says() {
        let (_directory, written, ready) = file(3 * PAGE_BYTES);
        assert!(ready.is_as_it_was().unwrap());
        for at in 0..PAGE_BYTES {
            let mut byte = [0];
            written.read_exact_at(&mut byte, at).unwrap();
            written.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
            assert!(!ready.has_page_0().unwrap(), "byte {at}");
            written.write_all_at(&byte, at).unwrap();
            assert!(ready.has_page_0().unwrap());
        }
    }

    #[test]
    fn a_file_that_needs_a_log_or_has_another_commit_is_not_ready() {
        let (directory, _written, ready) = file(3 * PAGE_BYTES);
        let path = directory.path().join("object");
        let open = |superblock: &Superblock| {
            ReadyObject::open(&Disk::default(), &path, superblock).unwrap()
        };
        let known = *ready.superblock();
        assert!(open(&known).is_some());
        assert!(open(&Superblock { log_required: 1, ..known }).is_none());
        assert!(open(&Superblock { commit_sequence: 9, ..known }).is_none());
        assert!(open(&Superblock { file_length: 4 * PAGE_BYTES, ..known }).is_none());
    }
}
