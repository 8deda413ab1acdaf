//! Hard links between the sources of several copies: a file that an earlier copy made is linked to, not copied again.

use std::collections::HashMap;
use std::ffi::CStr;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{self, AtFlags, CWD};

/// Device and inode.
pub(crate) type DeviceInode = (u64, u64);

/// Files with several hard links that earlier copies made, by the source's inode. Several [`Copy`](crate::Copy)s that
/// share one keep the hard links between their sources.
///
/// Memory: an entry for each file of which not all names have been copied yet.
///
/// ```
/// use std::os::unix::fs::MetadataExt;
/// use std::sync::Arc;
/// use evermap_transfer::{Copy, SharedLinks};
///
/// let place = tempfile::tempdir()?;
/// let path = |name: &str| place.path().join(name);
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
    /// Tells whether the path still leads to the copy.
    identity: DeviceInode,
}

impl SharedLinks {
    /// Notes that `path` is a complete copy of the file `source`. What has gone by now is not noted.
    pub(crate) fn copied(&self, source: DeviceInode, path: &Path) {
        let Some(identity) = identity_at(CWD, path) else { return };
        let copied = Copied { path: path.to_path_buf(), identity };
        self.copies.lock().unwrap_or_else(PoisonError::into_inner).insert(source, copied);
    }

    /// Makes `name` in `directory` a hard link to the copy of `source` that an earlier copy made. False where there is
    /// none, or it cannot be linked to: the file is copied then.
    pub(crate) fn link(&self, source: DeviceInode, directory: BorrowedFd<'_>, name: &CStr) -> bool {
        let copied =
            self.copies.lock().unwrap_or_else(PoisonError::into_inner).get(&source).cloned();
        let Some(copied) = copied else { return false };
        if fs::linkat(CWD, &copied.path, directory, name, AtFlags::empty()).is_err() {
            return false;
        }
        // Somebody may have put another file there since.
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
