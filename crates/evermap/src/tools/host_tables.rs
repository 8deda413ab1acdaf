//! What a sandbox's host keeps in a store's directory, for the tools that copy a store or move it.
//!
//! The tables are files that are replaced as a whole, so whoever opens one has one state of it.

use std::path::Path;

use crate::error::Result;
use crate::layout::HOST_TABLES;
use crate::storage::{OpenMode, Storage, copy_contents};

/// Copies those that there are into another directory, flushed; the directory is not.
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

/// The first that is not in both directories, or not the same in both.
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

/// A table's bytes; `None` where there is none.
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
