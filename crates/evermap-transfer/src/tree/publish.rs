//! Publishes completed entries, after making them durable.
//!
//! Durability of a new tree costs one `syncfs` instead of an `fsync` per file. An `fsync` commits
//! the file system's journal and flushes the device's cache, which ten thousand files would do ten
//! thousand times. `syncfs` writes all dirty data in disk order, commits once and flushes once. The
//! drawback: it also writes other programs' dirty pages on that file system. Nothing is published
//! before it. When a tree is merged into an existing one, complete files and directories are held
//! back, some thousands at a time, and published together. Only a file with several names is
//! flushed and published alone.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{self, AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::directory::{At, Directory, Placement};
use super::queue::lock;
use super::remove;
use super::shared::{Shared, target_error};
use super::unpublished::Item;
use crate::error::{Error, Result};
use crate::policy::Durability;

/// Number of held entries at which they are flushed and published. Limits the temporary files that
/// a kill leaves behind.
const HELD_MAX: usize = 4096;

impl Shared<'_> {
    /// Publishes a file, or holds it back until it is durable. With `at_once`, it is published now
    /// because other names are linked to it.
    pub(super) fn publish_file(&self, at: &At<'_>, temporary: &CStr, at_once: bool) -> Result<()> {
        let target = at.pair.target.as_fd();
        if self.is_durable() && !at_once {
            at.directory.pending.fetch_add(1, Ordering::Relaxed);
            return self.hold_back(Item::File {
                directory: Arc::clone(at.directory),
                temporary: temporary.to_owned(),
                name: at.name.to_owned(),
            });
        }
        if self.is_durable() {
            flush_one(target, temporary).map_err(|errno| self.target_error("flush", at, errno))?;
        }
        fs::renameat(target, temporary, target, at.name)
            .map_err(|errno| self.target_error("replace", at, errno))
    }

    /// Publishes a new directory with complete contents. Returns the parent, unless it is held
    /// back.
    pub(super) fn publish_tree(&self, directory: &Arc<Directory>) -> Option<Arc<Directory>> {
        let has_failed = directory.failed.load(Ordering::Relaxed);
        if has_failed && !self.options.keep_going {
            self.discard(directory);
            return directory.parent.clone();
        }
        if self.is_durable() {
            if let Err(error) = self.hold_back(Item::Tree(Arc::clone(directory))) {
                self.failed(directory, error);
            }
            return None;
        }
        if let Err(error) = self.name_tree(directory) {
            self.failed(directory, error);
        }
        directory.parent.clone()
    }

    fn hold_back(&self, item: Item) -> Result<()> {
        let mut held = lock(&self.unpublished.held);
        held.push(item);
        if held.len() < HELD_MAX {
            return Ok(());
        }
        let full = std::mem::take(&mut *held);
        drop(held);
        self.publish(full)
    }

    /// Flushes and publishes the held entries. Returns false if there were none. Call it until
    /// then, because completed directories may be held back in turn.
    pub(super) fn publish_held(&self) -> Result<bool> {
        let held = std::mem::take(&mut *lock(&self.unpublished.held));
        if held.is_empty() {
            return Ok(false);
        }
        self.publish(held)?;
        Ok(true)
    }

    fn publish(&self, items: Vec<Item>) -> Result<()> {
        if let Err(error) = self.flush() {
            // The data may not be on the disk, so nothing is published.
            items.iter().for_each(|item| self.drop_item(item));
            return Err(error);
        }
        for item in items {
            let parent = match &item {
                Item::File { directory, temporary, name } => {
                    if let Err(error) = self.name_file(directory, temporary, name) {
                        self.drop_item(&item);
                        self.failed(directory, error);
                    }
                    Some(Arc::clone(directory))
                }
                Item::Tree(directory) => {
                    if let Err(error) = self.name_tree(directory) {
                        self.failed(directory, error);
                    }
                    directory.parent.clone()
                }
            };
            if let Some(parent) = parent {
                self.completed(parent);
            }
        }
        Ok(())
    }

    fn name_file(&self, directory: &Arc<Directory>, temporary: &CStr, name: &CStr) -> Result<()> {
        let pair = self.descriptors.pair(directory, &self.roots)?;
        fs::renameat(&pair.target, temporary, &pair.target, name).map_err(|errno| {
            target_error("replace", directory.path(&self.roots.target, Some(name)), errno)
        })
    }

    fn name_tree(&self, directory: &Arc<Directory>) -> Result<()> {
        let Placement::New(temporary) = &directory.placement else { return Ok(()) };
        let path = || directory.path(&self.roots.target, None);
        let named = self.in_parent(directory, |parent| {
            let once = fs::renameat_with(
                parent,
                temporary,
                parent,
                &directory.name,
                RenameFlags::NOREPLACE,
            );
            match once {
                // The file system lacks this flag. `rename` still does not replace a non-empty
                // directory.
                Err(Errno::INVAL | Errno::NOSYS) => {
                    fs::renameat(parent, temporary, parent, &directory.name)
                }
                other => other,
            }
        });
        match named {
            Ok(Ok(())) => {
                directory.is_named.store(true, Ordering::Release);
                self.unpublished.finished(directory);
                Ok(())
            }
            Ok(Err(errno)) => {
                self.discard(directory);
                Err(target_error("publish", path(), errno))
            }
            Err(error) => Err(error),
        }
    }

    fn in_parent<T>(
        &self,
        directory: &Arc<Directory>,
        call: impl FnOnce(BorrowedFd<'_>) -> T,
    ) -> Result<T> {
        match (&directory.parent, &self.target_parent) {
            (Some(parent), _) => {
                Ok(call(self.descriptors.pair(parent, &self.roots)?.target.as_fd()))
            }
            (None, Some(parent)) => Ok(call(parent.as_fd())),
            (None, None) => {
                Err(Error::io("reach the parent of", self.roots.target.clone())(Errno::NOENT))
            }
        }
    }

    /// Removes a directory with a temporary name. Records an error on failure.
    fn discard(&self, directory: &Arc<Directory>) {
        let Placement::New(temporary) = &directory.placement else { return };
        self.unpublished.finished(directory);
        let failed = match self.in_parent(directory, |parent| remove::tree(parent, temporary)) {
            Ok(Ok(()) | Err(Errno::NOENT)) => return,
            Ok(Err(errno)) => {
                let path = directory.path(&self.roots.target, None).with_file_name(os(temporary));
                Error::io("remove the incomplete copy", path)(errno)
            }
            Err(error) => error,
        };
        self.failed(directory, failed);
    }

    fn drop_item(&self, item: &Item) {
        match item {
            Item::File { directory, temporary, .. } => {
                if let Ok(pair) = self.descriptors.pair(directory, &self.roots) {
                    let _ = fs::unlinkat(&pair.target, temporary, AtFlags::empty());
                }
            }
            Item::Tree(directory) => self.discard(directory),
        }
    }

    /// Removes all unpublished entries, after the threads ended early.
    pub(super) fn discard_all(&self) {
        for item in std::mem::take(&mut *lock(&self.unpublished.held)) {
            self.drop_item(&item);
        }
        let new_directories = std::mem::take(&mut *lock(&self.unpublished.new_directories));
        new_directories.iter().for_each(|directory| self.discard(directory));
    }

    /// Flushes the target's file systems.
    fn flush(&self) -> Result<()> {
        for (_, directory) in lock(&self.unpublished.file_systems).iter() {
            fs::syncfs(directory)
                .map_err(Error::io("flush the file system of", &self.roots.target))?;
        }
        Ok(())
    }

    /// Makes the names durable.
    pub(super) fn flush_names(&self) -> Result<()> {
        if self.options.durability != Durability::Full {
            return Ok(());
        }
        let Some(parent) = &self.target_parent else { return self.flush() };
        // Reopened, because creating names needed no read permission.
        let path = &self.roots.target;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let failed = "flush the directory of";
        let parent =
            fs::openat(parent, c".", flags, Mode::empty()).map_err(Error::io(failed, path))?;
        fs::fsync(parent).map_err(Error::io(failed, path))
    }
}

/// Flushes one file that is published at once.
fn flush_one(directory: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match fs::openat(directory, name, flags, Mode::empty()) {
        Ok(file) => fs::fdatasync(file)
            .or_else(|errno| if errno == Errno::INVAL { Ok(()) } else { Err(errno) }),
        // Not a file, or not readable by this user.
        Err(_) => fs::syncfs(directory),
    }
}

fn os(name: &CStr) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(name.to_bytes())
}
