//! Tidying up after the dead: what killed processes left half-made or half-removed.
//!
//! Done once a process, after its first change of the store. An unfinished file is told from one
//! that is being made by its maker's token, a lock that ends with its holder.

use tracing::{debug, warn};

use super::inner::{BUILDING, Inner, OBJECTS, lock};
use crate::address::random_uuid;
use crate::catalog::Catalog;
use crate::error::Result;
use crate::layout::{TOKEN_BYTES, parse_uuid, token_of};
use crate::persist::Mut;

impl Inner {
    /// Once a process: finishes what killed processes left half-done. Failures wait for the next.
    pub(super) fn sweep(&self) {
        if std::mem::replace(&mut *lock(&self.swept), true) {
            return;
        }
        if let Err(error) = self.sweep_building().and_then(|()| self.sweep_doomed()) {
            warn!(%error, "leftovers of other processes stay for now");
        }
    }

    fn sweep_building(&self) -> Result<()> {
        for name in self.storage.list(&self.directory.join(BUILDING))? {
            let Some(uuid) = parse_uuid(&name) else {
                continue;
            };
            let path = self.path_in(BUILDING, uuid);
            let named = self.catalog()?.look(|catalog, _| catalog.has_uuid(uuid))?;
            if named {
                self.storage.rename(&path, &self.path_in(OBJECTS, uuid))?;
                continue;
            }
            // Its maker may have published it and ended in between: look again.
            if !self.maker_lives(uuid)?
                && !self.catalog()?.look(|catalog, _| catalog.has_uuid(uuid))?
            {
                debug!(path = %path.display(), "removing an object that was never finished");
                self.storage.remove(&path)?;
            }
        }
        Ok(())
    }

    fn sweep_doomed(&self) -> Result<()> {
        let is_done = self.catalog()?.look(|catalog, _| catalog.doomed.is_empty())?;
        if is_done {
            return Ok(());
        }
        self.catalog()?.change(|catalog| self.finish_removals(catalog))
    }

    /// Removes the files of removed objects, durably, and the notes that they are to go.
    pub(super) fn finish_removals(&self, mut catalog: Mut<'_, Catalog>) -> Result<()> {
        for uuid in catalog.doomed.iter() {
            self.remove_files(*uuid);
        }
        self.storage.sync_directory(&self.directory.join(OBJECTS))?;
        catalog.fields().doomed.clear();
        Ok(())
    }

    /// An id for a new object: our token, then random bits.
    pub(super) fn new_uuid(&self) -> Result<[u8; 16]> {
        let mut own = lock(&self.token);
        let mut uuid = random_uuid()?;
        let token = match *own {
            Some(token) => token,
            None => loop {
                let token = token_of(random_uuid()?);
                if self.book.lock_token(token)? {
                    break *own.insert(token);
                }
            },
        };
        uuid[..TOKEN_BYTES].copy_from_slice(&token.to_be_bytes()[8 - TOKEN_BYTES..]);
        Ok(uuid)
    }

    fn maker_lives(&self, uuid: [u8; 16]) -> Result<bool> {
        let token = token_of(uuid);
        Ok(*lock(&self.token) == Some(token) || self.book.token_is_locked(token)?)
    }
}
