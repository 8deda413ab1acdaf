//! An object's file that comes from elsewhere: it gets an id, addresses and a name in this store.

use std::path::PathBuf;
use std::sync::Arc;

use super::catalog_access::own_leases;
use super::home::{Home, Use};
use super::inner::{BUILDING, Inner};
use super::publish::Finished;
use super::store::Store;
use crate::catalog::Lease;
use crate::error::Result;
use crate::storage::{File, Storage};

/// An object that is being taken in. Dropping it gives everything up.
pub(crate) struct Import {
    home: Arc<Home>,
    inner: Arc<Inner>,
    pub(crate) name: String,
    pub(crate) uuid: [u8; 16],
    /// Id of a file for what is not yet in order.
    pub(crate) stage: [u8; 16],
    leases: Vec<Lease>,
    is_done: bool,
}

impl Store {
    /// Begins to take an object in.
    pub(crate) fn begin_import(&self, name: &str) -> Result<Import> {
        self.home.run(Use::Open, |inner| {
            inner.check_new(name, false)?;
            let (uuid, stage) = (inner.new_uuid()?, inner.new_uuid()?);
            let (home, inner) = (Arc::clone(&self.home), Arc::clone(inner));
            let name = name.to_string();
            Ok(Import { home, inner, name, uuid, stage, leases: Vec::new(), is_done: false })
        })
    }
}

impl Import {
    /// For the files in that folder.
    pub(crate) fn storage(&self) -> Arc<dyn Storage> {
        Arc::clone(&self.inner.storage)
    }

    /// Where objects are made.
    pub(crate) fn folder(&self) -> PathBuf {
        self.inner.directory.join(BUILDING)
    }

    pub(crate) fn store_uuid(&self) -> [u8; 16] {
        self.inner.uuid
    }

    pub(crate) fn arena(&self) -> (u64, u64) {
        self.inner.arena
    }

    /// Takes these very addresses, all or none; false when they are not the store's, or
    /// somebody's.
    pub(crate) fn lease_exactly(&mut self, wanted: &[Lease]) -> Result<bool> {
        let book = &self.inner.book;
        let taken = self.inner.catalog()?.look(|catalog, reader| {
            let used = [catalog.used(), own_leases(reader)].concat();
            let is_free = |lease: &Lease| {
                let end = lease.base.saturating_add(lease.bytes);
                let inside =
                    catalog.arenas.iter().any(|a| lease.base >= a.base && end <= a.base + a.length);
                let meets = |u: &Lease| lease.base < u.base + u.bytes && u.base < end;
                inside && !used.iter().any(meets)
            };
            if !wanted.iter().all(is_free) {
                return Ok(false);
            }
            for (done, lease) in wanted.iter().enumerate() {
                if !book.take_exactly(lease)? {
                    book.give_up(&wanted[..done]);
                    return Ok(false);
                }
            }
            Ok(true)
        })??;
        if taken {
            self.leases = wanted.to_vec();
        }
        Ok(taken)
    }

    /// Takes some addresses that nobody has.
    pub(crate) fn lease(&mut self, bytes: u64) -> Result<u64> {
        let base = self.inner.lease(bytes)?;
        self.leases.push(Lease { base, bytes });
        Ok(base)
    }

    /// Names the object, whose file is complete, flushed, and locked as `made`.
    pub(crate) fn publish(mut self, created_ns: u64, made: Arc<dyn File>) -> Result<()> {
        self.inner.storage.sync_directory(&self.folder())?;
        let finished = Finished {
            name: self.name.clone(),
            uuid: self.uuid,
            created_ns,
            leases: self.leases.clone(),
            replace: false,
        };
        // The file is locked, so the store cannot be replaced from here on.
        self.home.check(&self.inner)?;
        self.inner.publish(&[finished], vec![made])?;
        self.is_done = true;
        Ok(())
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        let _ = self.inner.storage.remove(&self.inner.path_in(BUILDING, self.stage));
        if !self.is_done {
            let _ = self.inner.storage.remove(&self.inner.path_in(BUILDING, self.uuid));
            self.inner.book.give_up(&self.leases);
        }
    }
}
