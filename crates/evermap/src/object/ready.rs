//! An object file that was opened and checked once, and can be mapped repeatedly at low cost.
//!
//! As long as no log is needed, the result of opening an object depends only on page 0, the file's
//! length and its name. While these are unchanged, bit for bit, the checks need no repetition. Data
//! is never cached: each snapshot is a new mapping of the file, under the same lock as any
//! reader's. No lock is held between snapshots, so an idle ready object never blocks a writer.
//! Snapshots share one open file that carries the lock; a forked child keeps that file while it
//! keeps one of them.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{CONTENT_BYTE, Displacement, Writes};
use crate::address::{AddressSpace, Mapping, Sharing};
use crate::error::Result;
use crate::format::{PAGE_BYTES, Superblock};
use crate::storage::{File, FileState, LockKind, OpenMode, Storage};

/// A file that holds a complete commit, with its checked superblock.
#[derive(Debug)]
pub(crate) struct ReadyObject {
    file: Arc<dyn File>,
    superblock: Box<Superblock>,
    /// File state read before page 0 was compared.
    state: FileState,
    /// Open file through which the current snapshots hold the content lock.
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
    /// Opens the object whose superblock was read from `path` and checked. Returns `None` if the
    /// file does not hold this commit, or needs its log for it.
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

    /// Superblock as it was checked.
    pub(crate) fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Returns true while the file is linked. Drop the entry once it is not.
    pub(crate) fn has_a_name(&self) -> bool {
        self.file.has_a_name().unwrap_or(false)
    }

    /// Maps the object's last commit without waiting. Returns `None` if the commit may have
    /// changed, or if the file alone does not hold it.
    ///
    /// Takes five system calls, and one more for each region after the first.
    pub(crate) fn map(
        self: &Arc<Self>,
        space: &Arc<AddressSpace>,
        here: Displacement,
        writes: Writes,
    ) -> Result<Option<ReadySnapshot>> {
        let Some(locked) = self.lock_content()? else { return Ok(None) };
        // Checked under the lock: from here on no writer changes the file's pages.
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

    /// Returns true if file state and page 0 are still those that were checked.
    ///
    /// The modification time alone is not enough, because the kernel's clock is coarse. Page 0
    /// alone is not enough either, because it does not change when the file is cut short or
    /// replaced.
    fn is_as_it_was(&self) -> Result<bool> {
        Ok(self.file.state()? == self.state && self.has_page_0()?)
    }

    fn has_page_0(&self) -> Result<bool> {
        let mut page = [0; PAGE_BYTES as usize];
        let got = self.file.read_at(&mut page, 0)?;
        let known = bytemuck::bytes_of(&*self.superblock);
        Ok(got == known.len() && page == *known)
    }

    /// Returns the open file that holds the content lock, or `None` while a writer applies commits
    /// that the file lacks. The lock ends with the last process that has the file open or mapped.
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

    /// The mappings, one for each region.
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

    /// Creates a file of `length` bytes that begins with the page 0 of an object.
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
    fn every_byte_of_page_0_is_compared_whatever_the_mtime() {
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
    fn a_file_that_needs_a_log_or_holds_a_different_commit_is_not_ready() {
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
