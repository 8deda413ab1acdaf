//! Entries of a tree copy that are complete or being filled, and not published yet.

use std::ffi::CString;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;

use super::directory::Directory;
use super::queue::lock;

/// A complete entry that is not published.
#[derive(Debug)]
pub(super) enum Item {
    File { directory: Arc<Directory>, temporary: CString, name: CString },
    Tree(Arc<Directory>),
}

/// Complete entries that are not published, and new directories being filled.
#[derive(Debug, Default)]
pub(super) struct Unpublished {
    pub(super) held: Mutex<Vec<Item>>,
    pub(super) new_directories: Mutex<Vec<Arc<Directory>>>,
    /// A descriptor for each file system to publish on, by device number.
    pub(super) file_systems: Mutex<Vec<(u64, OwnedFd)>>,
}

impl Unpublished {
    /// Registers a directory with a temporary name, to be published or removed in any case.
    pub(super) fn started(&self, directory: &Arc<Directory>) {
        lock(&self.new_directories).push(Arc::clone(directory));
    }

    pub(super) fn finished(&self, directory: &Arc<Directory>) {
        lock(&self.new_directories).retain(|new| !Arc::ptr_eq(new, directory));
    }

    /// Registers the file system of `directory` for flushing.
    pub(super) fn publishes_on(&self, device: u64, directory: BorrowedFd<'_>) -> Result<(), Errno> {
        let mut file_systems = lock(&self.file_systems);
        if file_systems.iter().all(|(known, _)| *known != device) {
            file_systems.push((device, rustix::io::fcntl_dupfd_cloexec(directory, 0)?));
        }
        Ok(())
    }
}
