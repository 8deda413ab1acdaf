//! A directory being copied: its two sides and its pending work.
//!
//! Entries are accessed through directory descriptors, never by path: a path could be redirected
//! during the copy, and paths of deep trees exceed the kernel's limit. The number of open
//! descriptors is limited. The oldest pairs are closed and reopened later, from the nearest open
//! parent or through `..` of a child. Device and inode are then compared with the original ones.

use std::collections::VecDeque;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use rustix::fs::{self, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::queue::lock;
use crate::error::{Error, Result};
use crate::file::attributes::{Attributes, InitialAttributes, Xattr};

/// Device and inode number.
pub(super) type DeviceInode = (u64, u64);

/// Flags for opening directories. Symbolic links are not followed.
pub(super) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

pub(super) fn identity(stat: &Stat) -> DeviceInode {
    (stat.st_dev, stat.st_ino)
}

/// State of a directory in the target.
#[derive(Debug)]
pub(super) enum Placement {
    /// Existed before: its entries are replaced one by one.
    Existing,
    /// New, with a temporary name until its contents are complete.
    New(CString),
    /// Inside a new directory, under its own name: not visible yet.
    InsideNew,
}

/// A directory's open descriptors on both sides.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) source: OwnedFd,
    pub(super) target: OwnedFd,
}

/// A name in a directory that is open on both sides.
#[derive(Debug, Clone, Copy)]
pub(super) struct At<'a> {
    pub(super) directory: &'a Arc<Directory>,
    pub(super) pair: &'a Pair,
    pub(super) name: &'a CStr,
}

/// Attributes that files created in a directory get, learned from the first one.
#[derive(Debug, Clone, Copy)]
pub(super) struct CreationDefaults {
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// True if files keep the mode given at creation, apart from the umask.
    pub(super) keeps_mode: bool,
}

/// A directory of the tree.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) parent: Option<Arc<Directory>>,
    /// Name in both trees. For the root, the final name of the target.
    pub(super) name: CString,
    pub(super) placement: Placement,
    pub(super) attributes: Attributes,
    pub(super) xattrs: Vec<Xattr>,
    pub(super) made: InitialAttributes,
    /// Files created here inherit an ACL.
    pub(super) has_default_acl: bool,
    pub(super) creation_defaults: OnceLock<CreationDefaults>,
    pub(super) source_identity: DeviceInode,
    pub(super) target_identity: DeviceInode,
    /// Pending work before this is complete: its listing, shares of its files, its directories,
    /// links.
    pub(super) pending: AtomicUsize,
    /// An entry below a new directory could not be copied.
    pub(super) failed: AtomicBool,
    /// True if it has its final name: it existed, or it was published.
    pub(super) is_named: AtomicBool,
    pair: Mutex<Option<Arc<Pair>>>,
}

impl Directory {
    #[expect(
        clippy::too_many_arguments,
        reason = "one caller, which has all of them from different calls"
    )]
    pub(super) fn new(
        parent: Option<Arc<Directory>>,
        name: CString,
        placement: Placement,
        attributes: Attributes,
        xattrs: Vec<Xattr>,
        made: InitialAttributes,
        has_default_acl: bool,
        identities: (DeviceInode, DeviceInode),
        pair: Arc<Pair>,
    ) -> Directory {
        let is_named = !matches!(placement, Placement::New(_));
        Directory {
            parent,
            name,
            placement,
            attributes,
            xattrs,
            made,
            has_default_acl,
            creation_defaults: OnceLock::new(),
            source_identity: identities.0,
            target_identity: identities.1,
            pending: AtomicUsize::new(1),
            failed: AtomicBool::new(false),
            is_named: AtomicBool::new(is_named),
            pair: Mutex::new(Some(pair)),
        }
    }

    /// Returns true if entries created here are invisible until the whole is published.
    pub(super) fn is_hidden(&self) -> bool {
        !matches!(self.placement, Placement::Existing)
    }

    /// Returns its current name in the target.
    pub(super) fn target_name(&self) -> &CStr {
        match &self.placement {
            Placement::New(temporary) if !self.is_named.load(Ordering::Acquire) => temporary,
            _ => &self.name,
        }
    }

    /// Returns the new directory that this one will appear with, or `None` if entries are replaced
    /// one by one.
    pub(super) fn new_root(self: &Arc<Directory>) -> Option<Arc<Directory>> {
        let mut directory = self;
        loop {
            match directory.placement {
                Placement::New(_) => return Some(Arc::clone(directory)),
                Placement::Existing => return None,
                Placement::InsideNew => directory = directory.parent.as_ref()?,
            }
        }
    }

    /// Returns the path of this directory, or of `name` in it, below `root`. For messages.
    pub(super) fn path(&self, root: &std::path::Path, name: Option<&CStr>) -> PathBuf {
        let mut parts: Vec<&CStr> = name.into_iter().collect();
        let mut directory = self;
        while let Some(parent) = &directory.parent {
            parts.push(&directory.name);
            directory = parent;
        }
        let mut path = root.to_path_buf();
        path.extend(parts.iter().rev().map(|part| OsStr::from_bytes(part.to_bytes())));
        path
    }

    fn open_pair(&self) -> Option<Arc<Pair>> {
        lock(&self.pair).clone()
    }

    pub(super) fn is_open(&self) -> bool {
        lock(&self.pair).is_some()
    }
}

impl Drop for Directory {
    /// Drops parents iteratively: a tree may be deeper than the stack.
    fn drop(&mut self) {
        let mut parent = self.parent.take();
        while let Some(mut directory) = parent.and_then(Arc::into_inner) {
            parent = directory.parent.take();
        }
    }
}

/// Open descriptor pairs, oldest first.
#[derive(Debug)]
pub(super) struct Descriptors {
    pairs_max: usize,
    /// Flags for opening a directory of the source.
    source_flags: OFlags,
    open: Mutex<VecDeque<Weak<Directory>>>,
}

impl Descriptors {
    /// Allows `pairs_max` pairs in addition to those in use by threads. With `follow_links`, source
    /// directories may be reached through symbolic links.
    pub(super) fn new(pairs_max: usize, follow_links: bool) -> Descriptors {
        let source_flags = if follow_links { DIRECTORY - OFlags::NOFOLLOW } else { DIRECTORY };
        Descriptors { pairs_max: pairs_max.max(1), source_flags, open: Mutex::new(VecDeque::new()) }
    }

    /// Returns the flags for opening a directory of the source.
    pub(super) fn source_flags(&self) -> OFlags {
        self.source_flags
    }

    /// Registers an open pair, and closes the oldest ones above the limit. The root stays open,
    /// because all others are reached from it.
    pub(super) fn opened(&self, directory: &Arc<Directory>) {
        if directory.parent.is_none() {
            return;
        }
        let mut open = lock(&self.open);
        open.push_back(Arc::downgrade(directory));
        if open.len() <= self.pairs_max {
            return;
        }
        // Most are closed already, because they are complete.
        open.retain(|directory| directory.upgrade().is_some_and(|directory| directory.is_open()));
        // Free several at once, so that this is not repeated for each pair.
        let keep = self.pairs_max - self.pairs_max / 8;
        if open.len() > keep {
            let excess = open.len() - keep;
            for directory in open.drain(..excess).filter_map(|directory| directory.upgrade()) {
                lock(&directory.pair).take();
            }
        }
    }

    /// Closes all pairs that can be reopened.
    fn close_pairs(&self) {
        for directory in lock(&self.open).drain(..).filter_map(|directory| directory.upgrade()) {
            lock(&directory.pair).take();
        }
    }

    /// Calls `open`. If no descriptors are left, closes pairs and calls it again.
    pub(super) fn with_free_descriptors<T>(
        &self,
        mut open: impl FnMut() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match open() {
            Err(Errno::MFILE | Errno::NFILE) => {
                self.close_pairs();
                open()
            }
            other => other,
        }
    }

    /// Returns both sides of `directory`, reopened if necessary.
    pub(super) fn pair(&self, directory: &Arc<Directory>, paths: &Roots) -> Result<Arc<Pair>> {
        if let Some(pair) = directory.open_pair() {
            return Ok(pair);
        }
        let mut closed = vec![directory];
        let mut pair = loop {
            let parent = closed.last().and_then(|directory| directory.parent.as_ref());
            // The root is never closed.
            let Some(parent) = parent else {
                return Err(Error::io("reach", directory.path(&paths.target, None))(Errno::BADF));
            };
            match parent.open_pair() {
                Some(pair) => break pair,
                None => closed.push(parent),
            }
        };
        for directory in closed.into_iter().rev() {
            pair = Arc::new(self.reopen(
                directory,
                pair.source.as_fd(),
                &directory.name,
                pair.target.as_fd(),
                paths,
            )?);
        }
        self.keep_open(directory, &pair);
        Ok(pair)
    }

    /// Reopens the parent of a completed directory if it was closed. It is needed soon and is one
    /// step away from here.
    pub(super) fn reopen_parent(&self, parent: &Arc<Directory>, child: &Pair, paths: &Roots) {
        if parent.is_open() {
            return;
        }
        // Ignore errors: reopening from the root will report them if it is needed.
        if let Ok(pair) =
            self.open_sides(parent, child.source.as_fd(), c"..", child.target.as_fd(), c"..", paths)
        {
            self.keep_open(parent, &Arc::new(pair));
        }
    }

    fn keep_open(&self, directory: &Arc<Directory>, pair: &Arc<Pair>) {
        *lock(&directory.pair) = Some(Arc::clone(pair));
        self.opened(directory);
    }

    fn reopen(
        &self,
        directory: &Arc<Directory>,
        source: BorrowedFd<'_>,
        source_name: &CStr,
        target: BorrowedFd<'_>,
        paths: &Roots,
    ) -> Result<Pair> {
        let opened =
            self.open_sides(directory, source, source_name, target, directory.target_name(), paths);
        match opened {
            // It may have been published after `target_name` was read.
            Err(Error::Io { source: ref cause, .. })
                if cause.kind() == std::io::ErrorKind::NotFound =>
            {
                self.open_sides(
                    directory,
                    source,
                    source_name,
                    target,
                    directory.target_name(),
                    paths,
                )
            }
            other => other,
        }
    }

    fn open_sides(
        &self,
        directory: &Directory,
        source: BorrowedFd<'_>,
        source_name: &CStr,
        target: BorrowedFd<'_>,
        target_name: &CStr,
        paths: &Roots,
    ) -> Result<Pair> {
        let open = |at: BorrowedFd<'_>, name: &CStr, flags, expected, root: &PathBuf| {
            let failed = |errno: Errno| Error::io("open again", directory.path(root, None))(errno);
            let opened = self
                .with_free_descriptors(|| fs::openat(at, name, flags, Mode::empty()))
                .map_err(failed)?;
            let found = identity(&fs::fstat(&opened).map_err(failed)?);
            match found == expected {
                true => Ok(opened),
                false => Err(Error::SourceChanged {
                    path: directory.path(root, None),
                    what: "replaced by another directory".into(),
                }),
            }
        };
        Ok(Pair {
            source: open(
                source,
                source_name,
                self.source_flags,
                directory.source_identity,
                &paths.source,
            )?,
            target: open(target, target_name, DIRECTORY, directory.target_identity, &paths.target)?,
        })
    }
}

/// Paths of both roots, for messages.
#[derive(Debug, Clone)]
pub(super) struct Roots {
    pub(super) source: PathBuf,
    pub(super) target: PathBuf,
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Opens the current directory on both sides.
    pub(in super::super) fn pair() -> Arc<Pair> {
        let open = || OwnedFd::from(std::fs::File::open(".").unwrap());
        Arc::new(Pair { source: open(), target: open() })
    }

    pub(in super::super) fn child(
        parent: Option<Arc<Directory>>,
        pair: &Arc<Pair>,
    ) -> Arc<Directory> {
        let stat = fs::fstat(&pair.source).unwrap();
        let (attributes, made) = (Attributes::of(&stat), InitialAttributes::of(&stat));
        let (name, identities) = (c"name".to_owned(), (identity(&stat), identity(&stat)));
        let (placement, pair) = (Placement::Existing, Arc::clone(pair));
        Arc::new(Directory::new(
            parent,
            name,
            placement,
            attributes,
            vec![],
            made,
            false,
            identities,
            pair,
        ))
    }

    #[test]
    fn oldest_pairs_are_closed_above_the_limit() {
        let (descriptors, pair) = (Descriptors::new(8, false), pair());
        let root = child(None, &pair);
        let directories: Vec<_> = (0..50).map(|_| child(Some(Arc::clone(&root)), &pair)).collect();
        directories.iter().for_each(|directory| descriptors.opened(directory));
        let open = directories.iter().filter(|directory| directory.is_open()).count();
        assert!((1..=8).contains(&open), "{open} open pairs");
        assert!(directories[49].is_open() && !directories[0].is_open());
    }

    #[test]
    fn tree_deeper_than_the_stack_is_dropped() {
        let small = std::thread::Builder::new().stack_size(128 << 10);
        let forgotten = small.spawn(|| {
            let pair = pair();
            let deepest =
                (0..50_000).fold(child(None, &pair), |parent, _| child(Some(parent), &pair));
            drop(deepest);
        });
        forgotten.unwrap().join().unwrap();
    }
}
