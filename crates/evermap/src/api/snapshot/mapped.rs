//! One commit of an object, mapped read-only. The snapshots of a commit in a process share it.

use std::sync::Arc;

use crate::address::AccessKey;
use crate::api::addresses::leases::SharedLeases;
use crate::api::info::ObjectInfo;
use crate::api::options::Verify;
use crate::api::store_files::{HoldsObjects, Located, OpenEntry};
use crate::error::Result;
use crate::format::Superblock;
use crate::object::{BackgroundVerification, Code, Environment, Reader};

/// A mapped commit. The mapping ends with the last snapshot.
pub(in crate::api) struct MappedCommit {
    name: String,
    verified: bool,
    verification: Option<BackgroundVerification>,
    reader: Reader,
    _leases: SharedLeases,
    // Declared last: the addresses must be free before the entry is removed, because a thread that
    // waits for that maps the object again.
    entry: OpenEntry,
}

impl MappedCommit {
    /// Maps an object. The caller adds it to the list of open objects.
    pub(in crate::api) fn open(
        store: Arc<dyn HoldsObjects>,
        environment: &Environment,
        name: &str,
        located: Located,
    ) -> Result<MappedCommit> {
        let (files, uuid) = (store.files(), located.uuid);
        let reader = files.with_paths(name, uuid, |paths| Reader::open(environment, paths))?;
        let verify = files.options.verify;
        let verification = match verify {
            Verify::Superblock => None,
            Verify::Background => Some(reader.verify_in_background()?),
            Verify::Full => reader.verify().map(|()| None)?,
        };
        let leases = located.into_leases(files, reader.superblock())?;
        Ok(MappedCommit {
            name: name.to_string(),
            verified: verify == Verify::Full,
            verification,
            reader,
            _leases: leases,
            entry: OpenEntry::new(store, uuid),
        })
    }

    pub(in crate::api) fn reader(&self) -> &Reader {
        &self.reader
    }

    pub(in crate::api) fn name(&self) -> &str {
        &self.name
    }

    pub(in crate::api) fn superblock(&self) -> &Superblock {
        self.reader.superblock()
    }

    /// Refuses an object whose pointers lead into another build of the code in this process.
    ///
    /// # Errors
    /// `OtherBuild`. `Damaged` if the record of builds cannot be read.
    pub(in crate::api) fn check_code(&self) -> Result<()> {
        let code = Code::of(self.reader.file().path(), self.superblock())?;
        code.map_or(Ok(()), |code| code.check(&self.name))
    }

    /// Puts the mapping under an embedder's key.
    pub(in crate::api) fn set_protection_key(&self, key: &AccessKey) -> Result<()> {
        self.reader.set_protection_key(key)
    }

    /// Overwrites bytes of the object, for this process only.
    ///
    /// # Safety
    /// The bytes lie in the object's data, and no thread reads them during the call.
    pub(in crate::api) unsafe fn patch(&self, address: u64, bytes: &[u8]) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.reader.patch(address, bytes) }
    }

    pub(in crate::api) fn verified(&self) -> Result<bool> {
        self.verification.as_ref().map_or(Ok(self.verified), BackgroundVerification::outcome)
    }

    pub(in crate::api) fn verify_range(&self, address: u64, length: u64) -> Result<bool> {
        self.reader.verify_range(address, length)
    }

    pub(in crate::api) fn verify_root(&self) -> Result<bool> {
        let superblock = self.superblock();
        self.verify_range(superblock.root_address, superblock.root_bytes)
    }

    pub(in crate::api) fn is_current(&self) -> Result<bool> {
        let files = self.entry.files();
        let paths = files.paths(&self.name, self.entry.uuid());
        self.reader.is_current(&*files.storage, &paths.log_path)
    }

    pub(in crate::api) fn info(&self) -> Result<ObjectInfo> {
        ObjectInfo::of_reader(&self.name, &self.reader)
    }
}
