//! Exchanges a store's directory with another one in one step, and recovers from a crash in
//! between.
//!
//! The new directory is created next to the store as `.<name>.rebase-<time>` (the sibling), with an
//! empty directory `rebase-<time>` in it. When it is complete and durable, the two exchange their
//! names; then the old store is moved to the empty directory. After a crash the state is evident:
//! if the store has no `rebase-<time>`, the sibling is unfinished and is removed; if it has an
//! empty one, the sibling is the old store and is moved there. If it has one with files, an undo
//! had just begun: the sibling is empty and is removed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::api::refuse_open_here;
use crate::error::{Error, Result};
use crate::layout::{ADDRESSES, CATALOG};
use crate::object::{WRITER_BYTE, lock_byte};
use crate::storage::{File, LockKind, OpenMode, Storage, parent_of};
use crate::tools::address_lock::{AddressLock, FIRST, wait_for_users};
use crate::tools::quarantine::{exists, stamp};

/// Prefix of the directory with the old files.
pub(in crate::tools) const PREFIX: &str = "rebase-";

/// Lock on a store of which no other process had native objects open, or guest objects open for
/// writing. Also locks the catalog against changes.
pub(super) struct StoreLock {
    addresses: Arc<dyn File>,
    _catalog: Arc<dyn File>,
}

impl StoreLock {
    pub(super) fn acquire(
        storage: &dyn Storage,
        directory: &Path,
        timeout: Duration,
    ) -> Result<StoreLock> {
        refuse_open_here(storage, directory)?;
        let display_name = format!("store {}", directory.display());
        let addresses = storage.open(&directory.join(ADDRESSES), OpenMode::OpenOrCreate)?;
        lock_byte(&*addresses, LockKind::Exclusive, 0, timeout, &display_name)?;
        wait_for_users(&*addresses, FIRST, directory, timeout)?;
        let catalog = storage.open(&directory.join(CATALOG), OpenMode::ReadWrite)?;
        lock_byte(&*catalog, LockKind::Exclusive, WRITER_BYTE, timeout, &display_name)?;
        Ok(StoreLock { addresses, _catalog: catalog })
    }
}

impl StoreLock {
    /// Waits until no process has an object open, and keeps objects from being opened until the
    /// returned lock is dropped.
    pub(super) fn lock_addresses(
        &self,
        directory: &Path,
        timeout: Duration,
    ) -> Result<AddressLock> {
        AddressLock::acquire(&self.addresses, directory, timeout)
    }
}

/// Directory next to a store: the new store before an exchange, the old one after it.
pub(super) struct Sibling {
    pub(super) path: PathBuf,
    /// `rebase-<time>`, which is also the name of the directory in the store.
    pub(super) name: String,
}

fn sibling_path(directory: &Path, name: &str) -> PathBuf {
    let own = directory.file_name().unwrap_or_default().to_string_lossy();
    parent_of(directory).join(format!(".{own}.{name}"))
}

impl Sibling {
    /// Returns the sibling with a known name.
    pub(super) fn of(directory: &Path, name: &str) -> Sibling {
        Sibling { path: sibling_path(directory, name), name: name.to_string() }
    }

    /// Creates an empty sibling with a new name.
    pub(super) fn create(storage: &dyn Storage, directory: &Path) -> Result<Sibling> {
        if directory.file_name().is_none() {
            let why = "the path does not end in a name".to_string();
            return Err(Error::StoreExists { path: directory.to_path_buf(), why });
        }
        let stamp = stamp(SystemTime::now());
        let taken = storage.list(directory)?;
        for number in 1.. {
            let suffix = if number == 1 { String::new() } else { format!("-{number}") };
            let name = format!("{PREFIX}{stamp}{suffix}");
            let path = sibling_path(directory, &name);
            if taken.contains(&name) {
                continue;
            }
            match storage.create_directory(&path) {
                Err(e) if exists(&e) => continue,
                other => other?,
            }
            return Ok(Sibling { path, name });
        }
        unreachable!("there is always a further number")
    }

    /// Exchanges the names of the sibling and the store, durably.
    pub(super) fn exchange(&self, storage: &dyn Storage, directory: &Path) -> Result<()> {
        if !storage.exchange(&self.path, directory)? {
            let why = format!(
                "the file system of {} cannot exchange two directories in one step",
                directory.display()
            );
            return Err(Error::Unsupported { why });
        }
        storage.sync_directory(&parent_of(directory))
    }

    /// Moves the sibling to the empty directory of its name in the store.
    pub(super) fn move_in(&self, storage: &dyn Storage, directory: &Path) -> Result<PathBuf> {
        let kept = directory.join(&self.name);
        storage.rename(&self.path, &kept)?;
        storage.sync_directory(directory)?;
        storage.sync_directory(&parent_of(directory))?;
        Ok(kept)
    }

    /// Removes the sibling.
    pub(super) fn remove(&self, storage: &dyn Storage) -> Result<()> {
        storage.remove_all(&self.path)
    }
}

/// Completes or removes what a killed rebase or undo left. The caller has locked the store.
pub(super) fn tidy(storage: &dyn Storage, directory: &Path) -> Result<()> {
    let own = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let prefix = format!(".{own}.");
    for other in storage.list(&parent_of(directory))? {
        let Some(name) = other.strip_prefix(&prefix).filter(|n| n.starts_with(PREFIX)) else {
            continue;
        };
        let left = Sibling::of(directory, name);
        match storage.list(&directory.join(name)) {
            Ok(names) if names.is_empty() => drop(left.move_in(storage, directory)?),
            Ok(_) => left.remove(storage)?,
            Err(e) if e.is_missing_file() => left.remove(storage)?,
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Returns the name of the newest directory with old files in the store.
pub(super) fn newest_kept(storage: &dyn Storage, directory: &Path) -> Result<Option<String>> {
    let mut names = storage.list(directory)?;
    names.retain(|name| name.starts_with(PREFIX));
    // Sort by time, then by the number that distinguishes names of the same second.
    names.sort_by_key(|name| {
        let (time, number) = match name.rsplit_once('-') {
            Some((time, number)) if time.len() > PREFIX.len() => (time, number.parse().ok()),
            _ => (name.as_str(), None),
        };
        (time.to_string(), number.unwrap_or(1u64))
    });
    Ok(names.pop())
}
