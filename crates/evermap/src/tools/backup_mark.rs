//! The file that marks a store as a backup.
//!
//! It contains the absolute path of the store that was copied, and a line feed. A backup of a
//! backup names the first store. A restored store has no mark, and neither have backups of older
//! versions. The library does not change its behaviour for a marked store: callers decide what they
//! leave unchanged in a backup.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::layout::BACKUP_MARK;
use crate::storage::{Disk, OpenMode, Storage};

/// Maximum length of the file. Paths are shorter.
const MARK_BYTES_MAX: usize = 1 << 16;

/// Returns the path of the store that `directory` is a backup of, as of the time of the backup.
/// Returns `None` for a store that is not a backup, or is one of an older version.
///
/// # Errors
/// `NotPermitted` and `Io` if the mark exists and cannot be read.
///
/// ```
/// use evermap::{Store, tools};
/// # let directory = tempfile::tempdir()?;
/// let store = Store::create_new(directory.path().join("store"))?;
/// let copy = directory.path().join("copy");
/// store.backup(&copy)?;
/// assert_eq!(tools::original_of_backup(&copy)?.as_deref(), Some(store.path()));
/// assert_eq!(tools::original_of_backup(store.path())?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn original_of_backup(directory: impl AsRef<Path>) -> Result<Option<PathBuf>> {
    read(&Disk::default(), directory.as_ref())
}

fn read(storage: &dyn Storage, directory: &Path) -> Result<Option<PathBuf>> {
    let file = match storage.open(&directory.join(BACKUP_MARK), OpenMode::Read) {
        Err(e) if e.is_missing_file() => return Ok(None),
        other => other?,
    };
    let mut bytes = vec![0; (file.length()? as usize).min(MARK_BYTES_MAX)];
    let got = file.read_at(&mut bytes, 0)?;
    let path = bytes[..got].strip_suffix(b"\n").unwrap_or(&bytes[..got]);
    Ok(Some(PathBuf::from(OsStr::from_bytes(path))))
}

/// Marks `copy` as a backup of `original`. Flushes the file, but not the directory.
pub(super) fn write(storage: &dyn Storage, original: &Path, copy: &Path) -> Result<()> {
    let first = match read(storage, original)? {
        Some(first) => first,
        None => std::path::absolute(original).unwrap_or_else(|_| original.to_path_buf()),
    };
    create(storage, &first, copy)
}

/// Copies the mark, if there is one, to the store that takes the place of `from`. Flushes the file,
/// but not the directory.
pub(super) fn copy(storage: &dyn Storage, from: &Path, to: &Path) -> Result<()> {
    read(storage, from)?.map_or(Ok(()), |original| create(storage, &original, to))
}

fn create(storage: &dyn Storage, original: &Path, copy: &Path) -> Result<()> {
    let mut bytes = original.as_os_str().as_bytes().to_vec();
    bytes.push(b'\n');
    let file = storage.open(&copy.join(BACKUP_MARK), OpenMode::CreateNew)?;
    file.write_at(&bytes, 0)?;
    file.sync_data()
}
