//! Temporary directory of a copy, until the copy is durable and gets its name.
//!
//! A lock in the directory shows that its process is alive; the next copy to the same destination
//! removes directories of dead processes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::error::{Error, Result};
use crate::layout::ADDRESSES;
use crate::object::lock_byte;
use crate::storage::{File, FileSystem, LockKind, OpenMode, Storage, parent_of};
use crate::tools::quarantine::{exists, stamp};

/// Descriptors that removing a store's directory needs: one for it and one per level below.
const SPARE_DESCRIPTORS: usize = 3;

/// Temporary directory next to its destination. Removed on drop unless it was finished.
pub(super) struct Partial {
    storage: Arc<dyn Storage>,
    pub(super) path: PathBuf,
    /// Locked as long as this process lives.
    lock: Option<Arc<dyn File>>,
    /// Descriptors held in reserve, so that the directory can be removed if the process runs out of
    /// them.
    spare: Vec<Box<dyn FileSystem>>,
    finished: bool,
}

impl Partial {
    pub(super) fn create(storage: &Arc<dyn Storage>, to: &Path) -> Result<Partial> {
        let parent = parent_of(to);
        storage.create_directories(&parent)?;
        let name = to.file_name().map(|name| name.to_string_lossy().into_owned());
        let Some(name) = name else {
            return Err(Error::StoreExists {
                path: to.to_path_buf(),
                why: "the path does not end in a name".to_string(),
            });
        };
        let prefix = format!(".{name}.partial-");
        for old in storage.list(&parent)?.iter().filter(|other| other.starts_with(&prefix)) {
            remove_if_dead(&**storage, &parent.join(old));
        }
        let mut spare = Vec::new();
        for _ in 0..SPARE_DESCRIPTORS {
            spare.push(storage.file_system(&parent)?);
        }
        let stamp = stamp(SystemTime::now());
        for number in 0.. {
            let path = parent.join(format!("{prefix}{stamp}-{number}"));
            match storage.create_directory(&path) {
                Err(e) if exists(&e) => continue,
                other => other?,
            }
            let storage = Arc::clone(storage);
            let mut partial = Partial { storage, path, lock: None, spare, finished: false };
            let storage = &partial.storage;
            let lock = storage.open(&partial.path.join(ADDRESSES), OpenMode::CreateNew)?;
            lock_byte(&*lock, LockKind::Exclusive, 0, Duration::ZERO, "the copy")?;
            partial.lock = Some(lock);
            return Ok(partial);
        }
        unreachable!("there is always a further number")
    }

    /// Renames the directory to its destination, durably.
    pub(super) fn finish(mut self, rename: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        rename(&self.path)?;
        self.finished = true;
        self.storage.sync_directory(&parent_of(&self.path))
    }

    /// Exchanges the names of the directory and of an existing one, durably. If that cannot be made
    /// durable, the existing one gets its name back.
    pub(super) fn exchange(mut self, with: &Path) -> Result<Replaced> {
        self.swap(with)?;
        if let Err(error) = self.storage.sync_directory(&parent_of(&self.path)) {
            // The temporary name must not be the old store's when this value removes it.
            self.finished = self.swap(with).is_err();
            return Err(error);
        }
        self.finished = true;
        Ok(Replaced { storage: Arc::clone(&self.storage), path: self.path.clone() })
    }

    fn swap(&self, with: &Path) -> Result<()> {
        if self.storage.exchange(&self.path, with)? {
            return Ok(());
        }
        // The file system has no exchange: the existing directory is moved aside first.
        let name = with.file_name().unwrap_or_default().to_string_lossy();
        let aside = parent_of(with).join(format!(".{name}.old-{}", stamp(SystemTime::now())));
        self.storage.rename(with, &aside)?;
        if let Err(error) = self.storage.rename(&self.path, with) {
            self.storage.rename(&aside, with)?;
            return Err(error);
        }
        self.storage.rename(&aside, &self.path)
    }
}

/// Old directory after an exchange.
pub(super) struct Replaced {
    storage: Arc<dyn Storage>,
    path: PathBuf,
}

impl Replaced {
    /// Removes the directory. Returns its path and the cause on failure, which does not undo the
    /// exchange.
    pub(super) fn remove(self) -> Option<(PathBuf, String)> {
        let removed = self.storage.remove_all(&self.path);
        removed.err().map(|error| (self.path, error.to_string()))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.finished {
            self.spare.clear();
            // The next copy to the same place tries again.
            let _ = self.storage.remove_all(&self.path);
        }
    }
}

/// Removes a temporary directory if the process that created it is dead.
fn remove_if_dead(storage: &dyn Storage, path: &Path) {
    let is_alive = match storage.open(&path.join(ADDRESSES), OpenMode::ReadWrite) {
        Ok(lock) => !matches!(lock.try_lock(LockKind::Exclusive, 0, 1), Ok(true)),
        // Its process died before it created the file, or while it removed the directory. A live
        // process that has just created the directory for the same destination fails then.
        Err(_) => false,
    };
    if !is_alive {
        let _ = storage.remove_all(path);
    }
}
