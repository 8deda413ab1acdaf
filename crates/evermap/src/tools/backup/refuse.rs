//! Refusals: a copy must not replace other files, lie inside its source, or take the place of a
//! store in use.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::api::refuse_open_here;
use crate::error::{Error, Result};
use crate::layout::{
    ADDRESSES, BACKUP_MARK, BUILDING, CATALOG, CATALOG_LOG, HOST_LOCK, HOST_TABLES, NEW_CATALOG,
    OBJECTS,
};
use crate::object::lock_byte;
use crate::storage::{File, LockKind, OpenMode, Storage, parent_of};
use crate::tools::address_lock::{AddressLock, GRACE, wait_for_users};
use crate::tools::quarantine::PREFIX as KEPT_PREFIX;
use crate::tools::rebase::REBASE_PREFIX;

/// Returns true if something other than an empty directory exists at a path.
pub(super) fn is_occupied(storage: &dyn Storage, path: &Path) -> Result<bool> {
    match storage.list(path) {
        Ok(names) => Ok(!names.is_empty()),
        // A dangling symbolic link occupies the path.
        Err(e) if e.is_missing_file() => Ok(is_link(storage, path)),
        // The path is a file, or a parent of it is.
        Err(Error::Io { .. }) => match storage.open(path, OpenMode::Read) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotADirectory => {
                let why = format!("{} is not a directory", parent_of(path).display());
                Err(Error::StoreExists { path: path.to_path_buf(), why })
            }
            _ => Ok(true),
        },
        Err(e) => Err(e),
    }
}

pub(super) fn refuse_occupied(storage: &dyn Storage, path: &Path) -> Result<()> {
    if !is_occupied(storage, path)? {
        return Ok(());
    }
    let why = match is_link(storage, path) {
        true => "the path already exists, as a symbolic link that leads to no empty directory",
        false => "the path already exists",
    };
    Err(Error::StoreExists { path: path.to_path_buf(), why: why.to_string() })
}

/// Returns the path at which a copy gets its name by a rename. Follows a symbolic link, which the
/// rename would replace.
///
/// # Errors
/// `Io` for a mount point, which no rename replaces.
pub(super) fn place_of(storage: &dyn Storage, path: &Path) -> Result<PathBuf> {
    let place = match is_link(storage, path) {
        true => storage.resolve(path)?,
        false => path.to_path_buf(),
    };
    match storage.is_mount_point(&place) {
        false => Ok(place),
        true => Err(Error::Io {
            path: path.to_path_buf(),
            doing: "replace",
            source: io::Error::new(
                io::ErrorKind::ResourceBusy,
                "a file system is mounted there; name a new directory in it, or unmount it",
            ),
        }),
    }
}

/// Returns true if the path is a symbolic link, which an open does not follow.
fn is_link(storage: &dyn Storage, path: &Path) -> bool {
    // A trailing slash would follow the link.
    let path = path.components().as_path();
    let opened = storage.open(path, OpenMode::Read);
    matches!(opened, Err(Error::Foreign { found, .. }) if found.contains("symbolic link"))
}

/// Refuses a directory inside another. A copy inside its store would be removed with the store.
pub(super) fn refuse_inside(storage: &dyn Storage, inner: &Path, outer: &Path) -> Result<()> {
    // Compare the nearest existing directory and all directories above it. The kernel resolves
    // links.
    let there = std::path::absolute(inner).unwrap_or_else(|_| inner.to_path_buf());
    let mut at = there.as_path();
    let mut identity = storage.directory_identity(at);
    while let (Err(_), Some(parent)) = (&identity, at.parent()) {
        at = parent;
        identity = storage.directory_identity(at);
    }
    let (outer_identity, mut at) = (storage.directory_identity(outer)?, at.to_path_buf());
    while let Ok(found) = identity {
        if found == outer_identity {
            let is = if at == there { "is the same as" } else { "is inside" };
            let why = format!("it {is} {}", outer.display());
            return Err(Error::StoreExists { path: inner.to_path_buf(), why });
        }
        at.push("..");
        identity = storage.directory_identity(&at);
        if identity.as_ref().is_ok_and(|above| *above == found) {
            break;
        }
    }
    Ok(())
}

/// Refuses to replace a directory that contains more than a store, because all of it is removed.
/// Also refuses if the backup lacks a table of a sandbox's host, which would be lost with its keys.
pub(super) fn refuse_foreign_files(
    storage: &dyn Storage,
    store: &Path,
    backup: &Path,
) -> Result<()> {
    let refuse = |why: String| Err(Error::StoreExists { path: store.to_path_buf(), why });
    if is_link(storage, store) {
        return refuse("it is a symbolic link; name the directory that it leads to".to_string());
    }
    let is_ours = |name: &str| {
        let known = [
            ADDRESSES,
            BACKUP_MARK,
            BUILDING,
            CATALOG,
            CATALOG_LOG,
            NEW_CATALOG,
            OBJECTS,
            HOST_LOCK,
        ];
        let is_table = HOST_TABLES.contains(&name.strip_suffix(".new").unwrap_or(name));
        is_table
            || known.contains(&name)
            || name.starts_with(KEPT_PREFIX)
            || name.starts_with(REBASE_PREFIX)
    };
    let names = match storage.list(store) {
        Err(Error::Io { source, .. }) => return refuse(source.to_string()),
        other => other?,
    };
    let there = storage.list(backup)?;
    let is_lost = |name: &&str| names.iter().any(|n| n == name) && !there.iter().any(|n| n == name);
    if let Some(name) = HOST_TABLES.iter().find(|name| is_lost(name)) {
        return refuse(format!(
            "it holds `{name}`, which the backup lacks; copy that into the backup to keep it"
        ));
    }
    match names.iter().find(|name| !is_ours(name)) {
        None => Ok(()),
        Some(name) => refuse(format!("it holds `{name}`, which is not part of a store")),
    }
}

/// Locks a store that is about to be removed, so that no process commits to it. Returns `None` if
/// it has no lock file, or if this user may not lock it.
pub(super) fn refuse_use(
    storage: &dyn Storage,
    store: &Path,
) -> Result<Option<(AddressLock, Arc<dyn File>)>> {
    refuse_open_here(storage, store)?;
    let path = store.join(ADDRESSES);
    let locks = match storage.open(&path, OpenMode::ReadWrite) {
        Err(e) if e.is_missing_file() => return Ok(None),
        Err(Error::NotPermitted { .. }) => {
            let locks = storage.open(&path, OpenMode::Read)?;
            return wait_for_users(&*locks, 0, store, GRACE).map(|()| None);
        }
        other => other?,
    };
    // A rebase of the same store locks this byte.
    lock_byte(&*locks, LockKind::Exclusive, 0, GRACE, &format!("store {}", store.display()))?;
    Ok(Some((AddressLock::acquire(&locks, store, GRACE)?, locks)))
}
