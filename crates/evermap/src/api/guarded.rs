//! Protection keys of an embedder: the same method for sessions and snapshots, typed and raw. The
//! key applies to every region of the object, including regions added later.

use super::raw::{RawSession, RawSnapshot};
use super::session::Session;
use super::snapshot::Snapshot;
use crate::address::AccessKey;
use crate::error::Result;
use crate::persist::Persist;

impl<T: Persist> Session<T> {
    /// Puts the whole object under a key until the session ends, including memory that it gains
    /// later. From now on only threads with the key's rights may access it. The library's own work
    /// (commit, rollback, close, inspection) needs no rights. The program's use of the root and the
    /// heap does.
    ///
    /// If the session is also to be [protected](Session::protect), set the key first. A write scope
    /// then opens pages, and grants no rights to the key.
    ///
    /// # Errors
    /// When the kernel refuses, or the object has a key already.
    pub fn set_protection_key(&mut self, key: &AccessKey) -> Result<()> {
        self.open_session().set_protection_key(key)
    }

    /// Returns the object's name when it was opened.
    pub fn name(&self) -> &str {
        self.session().name()
    }

    /// Like [`RawSession::regions`].
    pub fn regions(&self) -> Vec<(u64, u64)> {
        self.session().regions()
    }
}

impl RawSession {
    /// Like [`Session::set_protection_key`]. [`set_root`](RawSession::set_root) needs the rights as
    /// well, because it reads the block.
    ///
    /// # Errors
    /// Same errors as [`Session::set_protection_key`].
    pub fn set_protection_key(&mut self, key: &AccessKey) -> Result<()> {
        self.open_session().set_protection_key(key)
    }
}

impl<T: Persist> Snapshot<T> {
    /// Puts the mapped commit under a key until the last of its snapshots in this process is
    /// dropped. From now on only threads with the key's rights may read it, also through
    /// [`info`](Snapshot::info).
    ///
    /// # Errors
    /// When the kernel refuses, or the mapping has a key already.
    pub fn set_protection_key(&mut self, key: &AccessKey) -> Result<()> {
        self.mapped().set_protection_key(key)
    }

    /// Returns the object's name when it was opened.
    pub fn name(&self) -> &str {
        self.mapped().name()
    }

    /// Like [`RawSnapshot::regions`].
    pub fn regions(&self) -> Vec<(u64, u64)> {
        self.mapped().superblock().regions().iter().map(|r| (r.base, r.length)).collect()
    }
}

impl RawSnapshot {
    /// Like [`Snapshot::set_protection_key`].
    ///
    /// # Errors
    /// Same errors as [`Snapshot::set_protection_key`].
    pub fn set_protection_key(&mut self, key: &AccessKey) -> Result<()> {
        self.mapped().set_protection_key(key)
    }
}
