//! Raw snapshots: one commit of an object, independent of the root's type.

use std::sync::Arc;

use super::mapped::MappedCommit;
use crate::address::AccessKey;
use crate::api::application::ApplicationKey;
use crate::api::info::ObjectInfo;
use crate::api::inner::StoreInner;
use crate::api::session::raw::RawRoot;
use crate::error::Result;

/// One commit of an object, open for reading, independent of the root's type. Its memory is mapped
/// read-only at the object's addresses until the last clone is dropped. See
/// [`Snapshot`](crate::Snapshot).
#[derive(Clone)]
pub struct RawSnapshot {
    mapped: Arc<MappedCommit>,
}

impl RawSnapshot {
    pub(in crate::api) fn open(
        inner: &Arc<StoreInner>,
        name: &str,
        application: Option<ApplicationKey>,
    ) -> Result<RawSnapshot> {
        let mapped = inner.read_object_for(name, application)?;
        if !inner.options.other_builds {
            mapped.check_code()?;
        }
        Ok(RawSnapshot { mapped })
    }

    /// Like [`Snapshot::set_protection_key`](crate::Snapshot::set_protection_key).
    ///
    /// # Errors
    /// Same errors as [`Snapshot::set_protection_key`](crate::Snapshot::set_protection_key).
    pub fn set_protection_key(&mut self, key: &AccessKey) -> Result<()> {
        self.mapped.set_protection_key(key)
    }

    /// Returns the object's name when it was opened.
    pub fn name(&self) -> &str {
        self.mapped.name()
    }

    /// Returns the root.
    pub fn root(&self) -> RawRoot {
        RawRoot::of(self.mapped.superblock())
    }

    /// Returns the address ranges of the object: base and bytes of each.
    pub fn regions(&self) -> Vec<(u64, u64)> {
        self.mapped.superblock().regions().iter().map(|r| (r.base, r.length)).collect()
    }

    /// Overwrites bytes at `address` for this process only, until the mapping that its snapshots
    /// share ends. For data that must differ between processes, such as addresses of their code.
    /// The pages become private copies.
    ///
    /// # Errors
    /// When the kernel refuses.
    ///
    /// # Panics
    /// If the bytes do not lie in the object's data. Check with [`contains`](Self::contains) first.
    ///
    /// # Safety
    /// No reference to these bytes exists, and no thread reads them during the call.
    pub unsafe fn patch(&self, address: usize, bytes: &[u8]) -> Result<()> {
        assert!(self.contains(address, bytes.len()), "the patch must lie in the object's data");
        // SAFETY: the caller's promise.
        unsafe { self.mapped.patch(address as u64, bytes) }
    }

    /// Compares the page that holds the root with its checksum. Call it before following pointers
    /// in the root. See [`Snapshot::verify_bytes`](crate::Snapshot::verify_bytes).
    ///
    /// # Errors
    /// `Damaged`.
    pub fn verify_root(&self) -> Result<bool> {
        self.mapped.verify_root()
    }

    /// Returns true if `length` bytes from `address` lie in the object's data.
    pub fn contains(&self, address: usize, length: usize) -> bool {
        self.mapped.superblock().regions().iter().any(|region| {
            let (first, end) = (region.base + region.meta_length, region.base + region.length);
            let last = (address as u64).checked_add(length as u64);
            address as u64 >= first && last.is_some_and(|last| last <= end)
        })
    }

    /// Returns true if this is the newest commit. Costs some small reads.
    ///
    /// # Errors
    /// When the files cannot be read.
    pub fn is_current(&self) -> Result<bool> {
        self.mapped.is_current()
    }

    /// Returns true if every page was compared with its checksum. See
    /// [`Snapshot::verified`](crate::Snapshot::verified).
    ///
    /// # Errors
    /// `Damaged`, with the first bad page.
    pub fn verified(&self) -> Result<bool> {
        self.mapped.verified()
    }

    /// Returns the number of this commit.
    pub fn sequence(&self) -> u64 {
        self.mapped.superblock().commit_sequence
    }

    /// Returns information about the object.
    ///
    /// # Errors
    /// When the file's length cannot be read.
    pub fn info(&self) -> Result<ObjectInfo> {
        self.mapped.info()
    }
}

impl std::fmt::Debug for RawSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawSnapshot").field("object", &self.name()).finish_non_exhaustive()
    }
}
