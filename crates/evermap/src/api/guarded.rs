//! Objects under an embedder's key: the same method for sessions and snapshots, typed and raw.

use super::raw::{RawSession, RawSnapshot};
use super::session::Session;
use super::snapshot::Snapshot;
use crate::address::AccessKey;
use crate::error::Result;
use crate::persist::Persist;

impl<T: Persist> Session<T> {
    /// Puts the whole object under a key until the session ends, what it gains later included: from
    /// now on it may be touched by threads that have the key's rights. What the library does for
    /// itself (committing, rolling back, closing, looking) needs none; what the program does with the
    /// root and the heap does.
    ///
    /// A session that is also to be [protected](Session::protect) gets its key first; a scope opens
    /// pages then, and gives no rights to the key.
    ///
    /// # Errors
    /// When the kernel refuses, or the object has a key already.
    pub fn guard_by(&mut self, key: &AccessKey) -> Result<()> {
        self.open_session().guard_by(key)
    }

    /// The object's name when it was opened.
    pub fn name(&self) -> &str {
        self.session().name()
    }

    /// As [`RawSession::regions`].
    pub fn regions(&self) -> Vec<(u64, u64)> {
        self.session().regions()
    }
}

impl RawSession {
    /// As [`Session::guard_by`]. [`set_root`](RawSession::set_root) needs the rights as well: it looks
    /// at the block.
    ///
    /// # Errors
    /// As there.
    pub fn guard_by(&mut self, key: &AccessKey) -> Result<()> {
        self.open_session().guard_by(key)
    }
}

impl<T: Persist> Snapshot<T> {
    /// Puts the mapped commit under a key, for all of its snapshots in this process and as long as
    /// one of them lives: from now on it may be read by threads that have the key's rights,
    /// [`info`](Snapshot::info) included.
    ///
    /// # Errors
    /// When the kernel refuses, or the mapping has a key already.
    pub fn guard_by(&mut self, key: &AccessKey) -> Result<()> {
        self.shared().guard_by(key)
    }

    /// The object's name when it was opened.
    pub fn name(&self) -> &str {
        self.shared().name()
    }

    /// As [`RawSnapshot::regions`].
    pub fn regions(&self) -> Vec<(u64, u64)> {
        self.shared().superblock().regions().iter().map(|r| (r.base, r.length)).collect()
    }
}

impl RawSnapshot {
    /// As [`Snapshot::guard_by`].
    ///
    /// # Errors
    /// As there.
    pub fn guard_by(&mut self, key: &AccessKey) -> Result<()> {
        self.shared().guard_by(key)
    }
}
