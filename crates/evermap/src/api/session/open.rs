//! Object open for writing, independent of the root's type. Typed and raw sessions are built on it.
//!
//! Owns the mapping, the writer lock and the leases from opening to closing. Keeps the order of
//! catalog and object commits when the object grew: addresses are recorded in the catalog before
//! the object uses them.

use std::sync::Arc;

use tracing::warn;

use crate::address::AccessKey;
use crate::alloc::Heap;
use crate::api::addresses::leases::SharedLeases;
use crate::api::info::ObjectInfo;
use crate::api::options::Verify;
use crate::api::store_files::{Located, OpenEntry};
use crate::at_fork;
use crate::catalog::{self, Lease};
use crate::commit::{LogPolicy, WriteOptions};
use crate::error::Result;
use crate::format::Superblock;
use crate::object::{
    BackgroundVerification, Environment, ForeignPointer, MemoryInChild, ObjectMap, Protection,
    Protector, Writer,
};

/// A session, typed or raw.
pub trait AnySession {
    /// Returns the open object.
    fn as_open(&self) -> &OpenSession;

    /// Returns the open object for changes.
    fn open_session(&mut self) -> &mut OpenSession;
}

/// An object open for writing. Dropping it discards uncommitted changes. Public only as a part of
/// [`AnySession`], which users cannot name.
pub struct OpenSession {
    verification: Option<BackgroundVerification>,
    /// All pages were verified when the object was opened.
    verified: bool,
    // Declared before `entry`, so that the mappings are removed before the object is marked as
    // closed.
    writer: Option<Writer>,
    /// Addresses of the committed regions; `None` only while the session is being dropped.
    leases: Option<SharedLeases>,
    entry: OpenEntry,
    name: String,
    /// The superblock changed, so the next commit writes a record even if no page changed.
    head_changed: bool,
}

impl OpenSession {
    /// Opens an object that is marked as open for writing.
    pub(in crate::api) fn open(
        entry: OpenEntry,
        environment: &Environment,
        name: &str,
        options: &WriteOptions,
        located: Located,
    ) -> Result<OpenSession> {
        let files = entry.files();
        let (verify, timeout) = (files.options.verify, files.options.busy_timeout);
        let mut writer = files.with_paths(name, located.uuid, |paths| {
            Writer::open(environment, paths, LogPolicy::WhileOpen, options, timeout)
        })?;
        if writer.superblock().name() != name {
            writer.superblock_mut().set_name(name);
        }
        let verification = match verify {
            Verify::Superblock => None,
            Verify::Background => writer.verify_in_background()?,
            Verify::Full => writer.verify().map(|()| None)?,
        };
        let leases = located.into_leases(files, writer.superblock())?;
        Ok(OpenSession {
            verification,
            verified: verify == Verify::Full,
            writer: Some(writer),
            leases: Some(leases),
            entry,
            name: name.to_string(),
            head_changed: false,
        })
    }

    /// Fails if no commit is possible any more, or none by this process.
    pub(in crate::api) fn check_usable(&self) -> Result<()> {
        self.writer().check_usable()
    }

    pub(in crate::api) fn name(&self) -> &str {
        &self.name
    }

    pub(in crate::api) fn heap(&self) -> &Heap {
        self.writer().heap()
    }

    /// Returns the allocator, for callers that cannot panic.
    #[inline]
    pub(in crate::api) fn heap_if_open(&self) -> Option<&Heap> {
        Some(self.writer.as_ref()?.heap())
    }

    pub(in crate::api) fn protect(
        &mut self,
        protection: Protection,
    ) -> Result<Option<Arc<Protector>>> {
        self.writer_mut().protect(protection)
    }

    /// Prepares a raw session: refuses code of another build, and makes commits search for pointers
    /// out of the object.
    pub(in crate::api) fn search_for_foreign(&mut self, options: &WriteOptions) -> Result<()> {
        if !self.entry.files().options.other_builds {
            let code = self.writer().code()?;
            code.map_or(Ok(()), |code| code.check(&self.name))?;
        }
        let space = Arc::clone(&self.entry.files().space);
        self.writer_mut().search_for_foreign(options.foreign_pointers, space)
    }

    pub(in crate::api) fn foreign_pointers(&mut self) -> Vec<ForeignPointer> {
        self.writer_mut().foreign_pointers()
    }

    pub(in crate::api) fn expect_foreign(&mut self, address: u64, bytes: u64) {
        if let Some(foreign) = self.writer_mut().foreign() {
            foreign.expect(address, bytes);
        }
    }

    pub(in crate::api) fn register_code(&mut self, register: bool) -> Result<()> {
        // This changes page 0 in memory, so the next commit finds it.
        self.writer_mut().register_code(register)
    }

    pub(in crate::api) fn set_protection_key(&mut self, key: &AccessKey) -> Result<()> {
        self.writer_mut().set_protection_key(key)
    }

    pub(in crate::api) fn superblock(&self) -> &Superblock {
        self.writer().superblock()
    }

    /// Returns the superblock for changes. The next commit writes them, even if nothing else
    /// changed.
    pub(in crate::api) fn superblock_mut(&mut self) -> &mut Superblock {
        self.head_changed = true;
        self.writer_mut().superblock_mut()
    }

    pub(in crate::api) fn commit(&mut self) -> Result<bool> {
        self.verified()?;
        let new: Vec<Lease> =
            self.writer().new_leases().iter().map(|&(base, bytes)| Lease { base, bytes }).collect();
        if !new.is_empty() {
            // The catalog comes first: addresses may be recorded and unused, but never used and
            // unrecorded.
            let known: Vec<Lease> =
                self.leases.as_ref().map_or_else(Vec::new, |leases| leases.all().to_vec());
            let all = [&known, &*new].concat();
            let (files, uuid) = (self.entry.files(), self.entry.uuid());
            let known = files.catalog()?.change(|catalog| {
                // A process that finds the leases in the catalog must be able to share them.
                files.lease_table.make_shared(&new)?;
                catalog::set_leases(catalog, uuid, &all)
            })?;
            if !known {
                return Err(files.not_found(&self.name));
            }
        }
        let committed = match self.head_changed {
            true => self.writer_mut().commit_superblock()?,
            false => self.writer_mut().commit()?,
        };
        self.head_changed = false;
        if committed && let Some(leases) = &mut self.leases {
            leases.adopt(new);
        }
        Ok(committed)
    }

    /// Returns true if there are uncommitted changes. See [`Writer::has_changes`].
    pub(in crate::api) fn has_changes(&mut self) -> Result<bool> {
        Ok(self.head_changed || self.writer_mut().has_changes()?)
    }

    pub(in crate::api) fn rollback(&mut self) -> Result<()> {
        self.head_changed = false;
        self.writer_mut().rollback()
    }

    pub(in crate::api) fn sync(&mut self) -> Result<()> {
        self.writer_mut().sync()
    }

    pub(in crate::api) fn checkpoint(&mut self) -> Result<bool> {
        self.writer_mut().checkpoint()
    }

    pub(in crate::api) fn reserve(&mut self, bytes: u64) -> Result<()> {
        let protector = self.writer().protector();
        let open = protector.as_deref().map(Protector::open_for_library).transpose()?;
        self.writer().make_room(bytes)?;
        drop(open);
        // New regions have to be in the catalog before the object has them.
        self.commit()?;
        self.writer_mut().reserved();
        Ok(())
    }

    pub(in crate::api) fn release(&mut self, bytes_max: u64) -> Result<u64> {
        self.commit()?;
        self.writer_mut().release(bytes_max)
    }

    pub(in crate::api) fn shrink(&mut self) -> Result<u64> {
        // New regions have to be in the catalog before the object has them.
        self.commit()?;
        self.writer_mut().shrink()
    }

    /// Tells a forked child whether it has the session's memory.
    pub(in crate::api) fn memory_in_child(&self) -> MemoryInChild {
        self.writer().memory_in_child()
    }

    pub(in crate::api) fn verified(&self) -> Result<bool> {
        self.verification.as_ref().map_or(Ok(self.verified), BackgroundVerification::outcome)
    }

    pub(in crate::api) fn map(&mut self) -> Result<ObjectMap> {
        self.writer_mut().map()
    }

    pub(in crate::api) fn sequence(&self) -> u64 {
        self.writer().sequence()
    }

    pub(in crate::api) fn regions(&self) -> Vec<(u64, u64)> {
        self.writer().regions()
    }

    pub(in crate::api) fn info(&self) -> Result<ObjectInfo> {
        ObjectInfo::of_writer(&self.name, self.writer())
    }

    fn writer(&self) -> &Writer {
        // The writer is taken out only while the session is being dropped.
        self.writer.as_ref().unwrap_or_else(|| unreachable!("a session in use has a writer"))
    }

    fn writer_mut(&mut self) -> &mut Writer {
        self.writer.as_mut().unwrap_or_else(|| unreachable!("a session in use has a writer"))
    }

    /// Ends the session. Does nothing if it has ended already. Dropping the session also ends it,
    /// but cannot return errors.
    pub(in crate::api) fn end(&mut self) -> Result<()> {
        if self.writer.is_some() && matches!(self.has_changes(), Ok(true)) {
            warn!(
                object = self.name,
                "uncommitted changes are discarded: commit or roll back before the session ends"
            );
        }
        let Some(mut writer) = self.writer.take() else {
            return Ok(());
        };
        // The verification reads the file, which is about to be truncated.
        self.verification = None;
        if at_fork::is_child() {
            // Only drops the child's copy, because the session belongs to the parent.
            return Ok(());
        }
        let ended = writer.rollback().and_then(|()| writer.close());
        drop(writer);
        self.leases = None;
        self.entry.remove();
        ended
    }
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            warn!(%error, object = self.name, "cannot close a session");
        }
    }
}
