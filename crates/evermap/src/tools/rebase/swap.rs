//! A store's directory that changes places with another one, in one step.
//!
//! The new directory is made beside the store as `.<name>.rebase-<time>`, with an empty directory
//! `rebase-<time>` in it. When it is complete and durable the two exchange their names; then the
//! old one goes to that empty directory. What a kill leaves says how far it came: while the store
//! has no `rebase-<time>`, the one beside it is unfinished and is removed; when the store has an
//! empty one, the one beside it is the old store, and goes there.

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

/// Begins the name of the directory that has the old files.
pub(in crate::tools) const PREFIX: &str = "rebase-";

/// A store that nobody else has open, and whose catalog nobody can change.
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
    /// Keeps objects from being opened until what is returned goes; waits for those who have one open.
    pub(super) fn lock_addresses(
        &self,
        directory: &Path,
        timeout: Duration,
    ) -> Result<AddressLock> {
        AddressLock::acquire(&self.addresses, directory, timeout)
    }
}

/// A directory beside a store, and the name that both sides of an exchange are known by.
pub(super) struct Sibling {
    pub(super) path: PathBuf,
    /// `rebase-<time>`.
    pub(super) name: String,
}

fn sibling_path(directory: &Path, name: &str) -> PathBuf {
    let own = directory.file_name().unwrap_or_default().to_string_lossy();
    parent_of(directory).join(format!(".{own}.{name}"))
}

impl Sibling {
    /// The one of a name that is known.
    pub(super) fn of(directory: &Path, name: &str) -> Sibling {
        Sibling { path: sibling_path(directory, name), name: name.to_string() }
    }

    /// Makes a new one, empty.
    pub(super) fn create(storage: &dyn Storage, directory: &Path) -> Result<Sibling> {
        if directory.file_name().is_none() {
            let why = "it has no name of its own".to_string();
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

    /// Lets it and the store exchange their names, durably. It is the store from then on.
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

    /// Moves it to the empty directory of its name in the store.
    pub(super) fn move_in(&self, storage: &dyn Storage, directory: &Path) -> Result<PathBuf> {
        let kept = directory.join(&self.name);
        storage.rename(&self.path, &kept)?;
        storage.sync_directory(directory)?;
        storage.sync_directory(&parent_of(directory))?;
        Ok(kept)
    }

    /// Removes it.
    pub(super) fn remove(&self, storage: &dyn Storage) -> Result<()> {
        storage.remove_all(&self.path)
    }
}

/// Finishes or removes what a killed rebase or undo left. The caller holds the store.
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

/// The newest of the store's directories with old files.
pub(super) fn newest_kept(storage: &dyn Storage, directory: &Path) -> Result<Option<String>> {
    let mut names = storage.list(directory)?;
    names.retain(|name| name.starts_with(PREFIX));
    // Times first, then the numbers of those made in one second.
    names.sort_by_key(|name| {
        let (time, number) = match name.rsplit_once('-') {
            Some((time, number)) if time.len() > PREFIX.len() => (time, number.parse().ok()),
            _ => (name.as_str(), None),
        };
        (time.to_string(), number.unwrap_or(1u64))
    });
    Ok(names.pop())
}
