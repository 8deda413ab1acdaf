//! Imports of object files: an imported object gets an id, addresses and a name in this store. An
//! import owns its unfinished files and leases until it is published.

use std::path::PathBuf;
use std::sync::Arc;

use super::access::own_leases;
use super::publish::{Finished, is_settled};
use crate::api::addresses::leases::MakerToken;
use crate::api::home::{Home, Use};
use crate::api::inner::StoreInner;
use crate::api::store::Store;
use crate::catalog::Lease;
use crate::error::{Error, Result};
use crate::layout::BUILDING;
use crate::storage::{File, Storage};

/// An object being imported. Dropping it before it is published removes its files and releases its
/// leases.
pub(crate) struct Import {
    home: Arc<Home>,
    inner: Arc<StoreInner>,
    pub(crate) name: String,
    pub(crate) uuid: [u8; 16],
    /// Id of a temporary file.
    pub(crate) stage: [u8; 16],
    leases: Vec<Lease>,
    _token: MakerToken,
    is_done: bool,
}

impl Store {
    /// Begins to import an object.
    pub(crate) fn begin_import(&self, name: &str) -> Result<Import> {
        self.home.run(Use::Open, |inner| {
            inner.check_new(name, false)?;
            let token = inner.lease_table.lock_token()?;
            let (uuid, stage) = (token.new_uuid()?, token.new_uuid()?);
            let (home, inner) = (Arc::clone(&self.home), Arc::clone(inner));
            let name = name.to_string();
            let leases = Vec::new();
            Ok(Import { home, inner, name, uuid, stage, leases, _token: token, is_done: false })
        })
    }
}

impl Import {
    /// Returns the storage of the store.
    pub(crate) fn storage(&self) -> Arc<dyn Storage> {
        Arc::clone(&self.inner.storage)
    }

    /// Returns the folder for unfinished objects.
    pub(crate) fn folder(&self) -> PathBuf {
        self.inner.directory.join(BUILDING)
    }

    pub(crate) fn store_uuid(&self) -> [u8; 16] {
        self.inner.uuid
    }

    pub(crate) fn arena(&self) -> (u64, u64) {
        self.inner.arena
    }

    /// Leases exactly these addresses, all or none. Returns false if some of them lie outside the
    /// store's arenas or are in use.
    pub(crate) fn lease_exactly(&mut self, wanted: &[Lease]) -> Result<bool> {
        let lease_table = &self.inner.lease_table;
        let taken = self.inner.catalog()?.read(|catalog, reader| {
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
                if !lease_table.take_exactly(lease)? {
                    lease_table.release(&wanted[..done]);
                    return Ok(false);
                }
            }
            Ok::<_, Error>(true)
        })??;
        if taken {
            self.leases = wanted.to_vec();
        }
        Ok(taken)
    }

    /// Leases any free addresses.
    pub(crate) fn lease(&mut self, bytes: u64) -> Result<u64> {
        let base = self.inner.lease(bytes)?;
        self.leases.push(Lease { base, bytes });
        Ok(base)
    }

    /// Names the object in the catalog. Its file, `made`, is complete, flushed and locked.
    pub(crate) fn publish(mut self, created_ns: u64, made: Arc<dyn File>) -> Result<()> {
        self.inner.storage.sync_directory(&self.folder())?;
        let finished = Finished {
            name: self.name.clone(),
            uuid: self.uuid,
            created_ns,
            leases: self.leases.clone(),
            replace: false,
        };
        // The token is locked in the store's lock file, so the store cannot be replaced from here
        // on.
        self.home.check(&self.inner)?;
        let published = self.inner.publish(&[finished], vec![made]);
        self.is_done = is_settled(&published);
        published
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        let _ = self.inner.storage.remove(&self.inner.path_in(BUILDING, self.stage));
        if !self.is_done {
            let _ = self.inner.storage.remove(&self.inner.path_in(BUILDING, self.uuid));
            self.inner.lease_table.release(&self.leases);
        }
    }
}
