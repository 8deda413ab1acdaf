//! Removes files that killed processes left: unfinished objects, and objects not completely
//! removed.
//!
//! Runs once per process and store, after the first object was added, replaced or removed. A file
//! in progress differs from an abandoned one by its creator's token, a lock that ends with its
//! holder.

use tracing::{debug, warn};

use crate::api::inner::StoreInner;
use crate::api::store_files::lock;
use crate::catalog::Catalog;
use crate::error::Result;
use crate::layout::{BUILDING, OBJECTS, parse_uuid, token_of};
use crate::persist::Mut;

impl StoreInner {
    /// Finishes what killed processes left unfinished, once per process. After a failure, the next
    /// process tries again.
    pub(in crate::api) fn sweep(&self) {
        if std::mem::replace(&mut *lock(&self.swept), true) {
            return;
        }
        if let Err(error) = self.sweep_building().and_then(|()| self.sweep_doomed()) {
            warn!(%error, "cannot remove files that killed processes left");
        }
    }

    fn sweep_building(&self) -> Result<()> {
        for name in self.storage.list(&self.directory.join(BUILDING))? {
            let Some(uuid) = parse_uuid(&name) else {
                continue;
            };
            let path = self.path_in(BUILDING, uuid);
            let named = self.catalog()?.read(|catalog, _| catalog.has_uuid(uuid))?;
            if named {
                self.storage.rename(&path, &self.path_in(OBJECTS, uuid))?;
                continue;
            }
            // The creator may have published the object and ended in between, so check the catalog
            // again.
            if !self.maker_lives(uuid)?
                && !self.catalog()?.read(|catalog, _| catalog.has_uuid(uuid))?
            {
                debug!(path = %path.display(), "removing an object that was never finished");
                self.storage.remove(&path)?;
            }
        }
        Ok(())
    }

    fn sweep_doomed(&self) -> Result<()> {
        let is_done = self.catalog()?.read(|catalog, _| catalog.doomed.is_empty())?;
        if is_done {
            return Ok(());
        }
        self.catalog()?.change(|catalog| self.finish_removals(catalog))
    }

    /// Deletes the files of removed objects durably, and then clears the list of them.
    pub(in crate::api) fn finish_removals(&self, mut catalog: Mut<'_, Catalog>) -> Result<()> {
        for uuid in catalog.doomed.iter() {
            self.remove_files(*uuid);
        }
        self.storage.sync_directory(&self.directory.join(OBJECTS))?;
        catalog.fields().doomed.clear();
        Ok(())
    }

    fn maker_lives(&self, uuid: [u8; 16]) -> Result<bool> {
        self.lease_table.token_is_locked(token_of(uuid))
    }
}
