//! Disk space of an object: reserving room, and returning what the object does not need.
//!
//! Order matters, see "Returning disk space" in `docs/durability.md`: a commit records what the
//! object gives back before the file loses it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tracing::warn;

use super::{Writer, opened};
use crate::commit::{Growth, locks};
use crate::error::Result;
use crate::format::{FEATURE_HOLES, PAGE_BYTES};
use crate::mutate::{Mutant, mutated};

/// Closing gives unneeded disk space back when it is more than one part in this many of the file.
/// That costs a flush, or three if the log has lines for the released part.
const GIVE_BACK_BEYOND_PART: u64 = 8;
/// Minimum part and minimum bytes of a file's unused end for which cutting is worthwhile: an object
/// that was built in one go is about as long as its contents.
const TRIM_LARGE: (u64, u64) = (128, 2 << 20);

fn worth_cutting(spare: u64, file_length: u64) -> bool {
    let (part, bytes_min) = TRIM_LARGE;
    spare > file_length / GIVE_BACK_BEYOND_PART
        || (spare >= bytes_min && spare > file_length / part)
}

/// Closing gives free chunks back where at least this many (1 MiB) are adjacent: fewer cost more in
/// extents than they save.
const HOLE_CHUNKS_MIN: usize = 16;

impl Writer {
    /// Punches holes in place of free chunks where at least `chunks_min` of them are adjacent,
    /// after committing all stores. Returns the number of bytes; 0 while readers are in the way, or
    /// if the file system has no holes.
    ///
    /// The order matters. First a commit records that these chunks are holes and that their
    /// checksums are unknown. Then the holes are punched and flushed, before any page is taken for
    /// zeros.
    fn give_back(&mut self, chunks_min: usize) -> Result<u64> {
        let holes = self.heap.mark_holes(chunks_min);
        if holes.is_empty() {
            return Ok(0);
        }
        if mutated(Mutant::HolesBeforeCommit) {
            self.engine.punch_holes(&holes)?;
        }
        self.superblock.features_incompatible |= FEATURE_HOLES;
        self.commit_growth(Growth {
            given_back: self.region_set.pages_of(&holes),
            ..self.region_set.growth()
        })?;
        let bytes = holes.iter().map(|(_, bytes)| bytes).sum();
        Ok(if self.engine.punch_holes(&holes)? { bytes } else { 0 })
    }

    /// Ends the session. Gives back the unused end of the file and large runs of free chunks if
    /// that is worthwhile, unless room was reserved. Uncommitted stores must have been rolled back:
    /// giving chunks back commits.
    pub(crate) fn close(&mut self) -> Result<()> {
        let protector = self.protector.clone();
        let _open = opened(protector.as_deref())?;
        if self.reserved {
            return self.engine.close();
        }
        if self.grew {
            self.grew = false;
            self.trim(u64::MAX, worth_cutting)?;
        }
        if self.superblock.commit_sequence > self.opened_at {
            let free = self.heap.free_bytes(HOLE_CHUNKS_MIN);
            if free > self.superblock.file_length / GIVE_BACK_BEYOND_PART {
                self.give_back(HOLE_CHUNKS_MIN)?;
            }
        }
        self.engine.close()
    }

    /// Commits and gives back the disk space that the object does not need, as far as readers
    /// permit. Returns the number of bytes. Readers keep their pages.
    pub(crate) fn shrink(&mut self) -> Result<u64> {
        let protector = self.protector.clone();
        let _open = opened(protector.as_deref())?;
        let before = self.file().disk_bytes()?;
        self.commit()?;
        self.trim(u64::MAX, |_, _| true)?;
        self.give_back(1)?;
        self.reserved = false;
        Ok(before.saturating_sub(self.file().disk_bytes()?))
    }

    /// Reserves room for a block of `bytes` bytes, or for smaller ones.
    pub(crate) fn make_room(&self, bytes: u64) -> Result<()> {
        Ok(self.region_set.make_room(|| self.heap.reserve(bytes))?)
    }

    /// Notes that room was reserved, so closing keeps it.
    pub(crate) fn reserved(&mut self) {
        self.reserved = true;
    }

    /// Commits, and cuts up to `bytes_max` of unused bytes off the file's end. Returns the number
    /// of bytes.
    pub(crate) fn release(&mut self, bytes_max: u64) -> Result<u64> {
        let protector = self.protector.clone();
        let _open = opened(protector.as_deref())?;
        self.commit()?;
        let before = self.superblock.file_length;
        self.trim(bytes_max, |_, _| true)?;
        Ok(before.saturating_sub(self.superblock.file_length))
    }

    /// Cuts up to `bytes_max` of unused bytes off the file's end, if `worth` approves the number
    /// for a file of this length. Everything must be committed.
    fn trim(&mut self, bytes_max: u64, worth: impl Fn(u64, u64) -> bool) -> Result<()> {
        let mut used = self.heap.flush_and_measure();
        let records = self.region_set.records();
        let spare = match (records.last(), used.last_mut()) {
            (Some(record), Some(used)) => {
                let data = record.length - record.meta_length;
                *used = data - (data - *used).min(bytes_max / PAGE_BYTES * PAGE_BYTES);
                data - *used
            }
            _ => 0,
        };
        if spare == 0 || !worth(spare, self.superblock.file_length) {
            return Ok(());
        }
        // A reader of a longer commit uses the part that would be cut, or that later sessions would
        // allocate again. So the object is made shorter only without readers.
        let file = Arc::clone(self.file());
        let Some(exclusive) = locks::lock_exclusively(&*file)? else { return Ok(()) };
        // The shorter length is committed before the file is cut: a cut file whose superblock has
        // the old length would be taken for damage.
        let mut shorter = records;
        if let Some(last) = shorter.last_mut() {
            last.length -= spare;
        }
        let length = shorter.iter().map(|r| r.file_offset + r.length).max().unwrap_or(0);
        if mutated(Mutant::TrimBeforeCommit) {
            self.file().set_length(length)?;
        }
        self.superblock.seal(&shorter, length);
        // SAFETY: as in `commit_superblock`.
        unsafe { self.superblock.lay_at(self.region_set.base()) };
        let superblock = &mut self.superblock;
        let growth = Growth {
            fresh: Vec::new(),
            file_length: length,
            regions: shorter.clone(),
            given_back: Vec::new(),
            unreserved: Arc::clone(self.region_set.unreserved()),
        };
        let seal = |number, page: &mut _| superblock.seal_commit(number, page, &shorter, length);
        self.engine.set_content_locked(true);
        let committed =
            self.engine.commit(growth, |_| Ok(()), seal).and_then(|_| self.engine.sync());
        self.engine.set_content_locked(false);
        drop(exclusive);
        committed?;
        if !self.engine.forget_after(length)? {
            return Ok(());
        }
        self.engine.shorten(&shorter);
        self.length_min.fetch_min(length, Ordering::SeqCst);
        if let Err(error) = self.region_set.trim(&used) {
            warn!(%error, "could not give back the unused end of the object file");
        }
        // SAFETY: as in `rollback`: the regions are mapped as the last commit has them.
        unsafe { self.heap.reload(&self.region_set.records()) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    use super::*;
    use crate::address::AddressSpace;
    use crate::commit::{LogPolicy, WriteOptions};
    use crate::format::KIND_OBJECT;
    use crate::object::{
        Addresses, Draft, DraftOptions, Environment, Identity, ObjectPaths, RootType,
    };
    use crate::storage::{Disk, LockKind, OpenMode};

    struct Leases(AtomicU64);

    impl Addresses for Leases {
        fn lease(&self, bytes: u64) -> Result<u64> {
            Ok(self.0.fetch_add(bytes, Ordering::Relaxed))
        }

        fn release(&self, _base: u64, _bytes: u64) {}
    }

    #[test]
    fn an_apply_keeps_the_lock_of_its_caller() {
        const ARENA: (u64, u64) = (0x5c00_0000_0000, 1 << 30);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("object");
        let environment = Environment {
            storage: Arc::new(Disk::default()),
            space: AddressSpace::new("test"),
            addresses: Arc::new(Leases(AtomicU64::new(ARENA.0))),
            guest: None,
        };
        environment.space.reserve(ARENA.0, ARENA.1).unwrap();
        let options = DraftOptions { kind: KIND_OBJECT, arena: ARENA, ..DraftOptions::default() };
        let mut draft = Draft::create(&environment, &path, &options).unwrap();
        draft
            .place_root(RootType { bytes: 8, align: 8, type_id: [1; 16], schema: "a number" })
            .unwrap();
        draft.finish(&environment, None).unwrap();
        draft.published();
        drop(draft);
        let paths = ObjectPaths {
            path: path.clone(),
            log_path: directory.path().join("log"),
            identity: Identity { store_uuid: None, object_uuid: None, kind: KIND_OBJECT },
            display_name: "object".to_string(),
        };
        // Each commit is applied at once.
        let options = WriteOptions::new().log_bytes_max(0);
        let (policy, timeout) = (LogPolicy::WhileOpen, Duration::ZERO);
        let mut writer = Writer::open(&environment, &paths, policy, &options, timeout).unwrap();
        let other = environment.storage.open(&path, OpenMode::ReadWrite).unwrap();
        let may_read = || {
            [locks::CONTENT_BYTE, locks::CONTENT_BYTE_SECOND].into_iter().any(|byte| {
                let locked = other.try_lock(LockKind::Shared, byte, 1).unwrap();
                other.unlock(byte, 1).unwrap();
                locked
            })
        };
        let file = Arc::clone(writer.file());
        let exclusive = locks::lock_exclusively(&*file).unwrap().unwrap();
        writer.engine.set_content_locked(true);
        writer.superblock_mut().set_name("another name");
        assert!(writer.commit_superblock().unwrap());
        assert!(writer.is_applied());
        assert!(!may_read());
        writer.engine.set_content_locked(false);
        drop(exclusive);
        assert!(may_read());
    }
}
