//! Copies and compares the tables that a sandbox's host keeps in a store's directory.
//!
//! The host replaces a table as a whole, so an open file is one consistent state.

use std::path::Path;

use crate::error::Result;
use crate::layout::HOST_TABLES;
use crate::storage::{OpenMode, Storage, copy_contents};

/// Copies the existing tables into another directory. Flushes the files, but not the directory.
pub(super) fn copy(storage: &dyn Storage, from: &Path, to: &Path) -> Result<()> {
    for name in HOST_TABLES {
        let source = match storage.open(&from.join(name), OpenMode::Read) {
            Err(e) if e.is_missing_file() => continue,
            other => other?,
        };
        let target = storage.open(&to.join(name), OpenMode::CreateNew)?;
        copy_contents(&*source, &*target, source.length()?)?;
        target.sync_data()?;
    }
    Ok(())
}

/// Returns the name of the first table that differs between two directories, or exists in only one.
pub(super) fn differing(
    storage: &dyn Storage,
    one: &Path,
    other: &Path,
) -> Result<Option<&'static str>> {
    for name in HOST_TABLES {
        if read(storage, &one.join(name))? != read(storage, &other.join(name))? {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Returns a table's bytes, or `None` if the table does not exist.
fn read(storage: &dyn Storage, path: &Path) -> Result<Option<Vec<u8>>> {
    let file = match storage.open(path, OpenMode::Read) {
        Err(e) if e.is_missing_file() => return Ok(None),
        other => other?,
    };
    let mut bytes = vec![0; file.length()? as usize];
    let got = file.read_at(&mut bytes, 0)?;
    bytes.truncate(got);
    Ok(Some(bytes))
}
