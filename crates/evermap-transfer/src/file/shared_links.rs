//! Hard links between the sources of several copies: a file that was already copied is linked
//! instead of copied.

use std::collections::HashMap;
use std::ffi::CStr;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{self, AtFlags, CWD};

/// Device and inode number.
pub(crate) type DeviceInode = (u64, u64);

/// Copies of files with several hard links, by the source's inode. [`Copy`](crate::Copy)s that
/// share one preserve hard links between their sources.
///
/// Memory: one entry per copied file with several links. Entries are not removed.
///
/// ```
/// use std::os::unix::fs::MetadataExt;
/// use std::sync::Arc;
/// use evermap_transfer::{Copy, SharedLinks};
///
/// let directory = tempfile::tempdir()?;
/// let path = |name: &str| directory.path().join(name);
/// std::fs::write(path("one"), "text")?;
/// std::fs::hard_link(path("one"), path("two"))?;
/// std::fs::create_dir(path("copies"))?;
///
/// let links = Arc::new(SharedLinks::default());
/// for name in ["one", "two"] {
///     Copy::new(path(name), path("copies")).links(Arc::clone(&links)).run()?;
/// }
/// assert_eq!(std::fs::metadata(path("copies/two"))?.nlink(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct SharedLinks {
    copies: Mutex<HashMap<DeviceInode, Copied>>,
}

#[derive(Debug, Clone)]
struct Copied {
    path: PathBuf,
    /// Inode of the copy, to detect that the path was replaced.
    identity: DeviceInode,
}

impl SharedLinks {
    /// Records that `path` is a complete copy of `source`. Ignored if `path` no longer exists.
    pub(crate) fn copied(&self, source: DeviceInode, path: &Path) {
        let Some(identity) = identity_at(CWD, path) else { return };
        let copied = Copied { path: path.to_path_buf(), identity };
        self.copies.lock().unwrap_or_else(PoisonError::into_inner).insert(source, copied);
    }

    /// Makes `name` in `directory` a hard link to the recorded copy of `source`. Returns false if
    /// there is none or it cannot be linked. The caller then copies the file.
    pub(crate) fn link(&self, source: DeviceInode, directory: BorrowedFd<'_>, name: &CStr) -> bool {
        let copied =
            self.copies.lock().unwrap_or_else(PoisonError::into_inner).get(&source).cloned();
        let Some(copied) = copied else { return false };
        if fs::linkat(CWD, &copied.path, directory, name, AtFlags::empty()).is_err() {
            return false;
        }
        // The path may refer to another file by now.
        let is_the_copy = identity_at(directory, name) == Some(copied.identity);
        if !is_the_copy {
            let _ = fs::unlinkat(directory, name, AtFlags::empty());
        }
        is_the_copy
    }
}

fn identity_at(directory: BorrowedFd<'_>, path: impl rustix::path::Arg) -> Option<DeviceInode> {
    let stat = fs::statat(directory, path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some((stat.st_dev, stat.st_ino))
}
