//! A directory that is being copied: both its sides, and what is due before it is complete.
//!
//! Everything is reached by descriptors of directories, never by paths: a path could be led elsewhere while the copy
//! runs, and those of deep trees are longer than the kernel takes. Descriptors are bounded: the oldest pairs are closed when
//! there are too many, and opened again from the nearest ancestor that is open, or through `..` from a child. Either way
//! device and inode are compared with what was opened first.

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
use crate::file::attributes::{Attributes, Made, Xattr};

/// Device and inode.
pub(super) type DeviceInode = (u64, u64);

/// For directories that are listed or made in. Never through a symbolic link.
pub(super) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

pub(super) fn identity(stat: &Stat) -> DeviceInode {
    (stat.st_dev, stat.st_ino)
}

/// How a directory got its place in the target.
#[derive(Debug)]
pub(super) enum Place {
    /// It was there: what is in it is replaced one by one.
    Existing,
    /// New, under a temporary name until all in it is complete.
    Fresh(CString),
    /// Made within one that is fresh, under its own name: nobody sees it yet.
    Within,
}

/// Both sides, open.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) source: OwnedFd,
    pub(super) target: OwnedFd,
}

/// What files made in a directory are given by it, learned from the first one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manners {
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Files have the mode that they were created with, but for the umask.
    pub(super) modes_hold: bool,
}

/// One directory of the tree.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) parent: Option<Arc<Directory>>,
    /// In both trees; of the uppermost, the name that the target is to have.
    pub(super) name: CString,
    pub(super) place: Place,
    pub(super) attributes: Attributes,
    pub(super) xattrs: Vec<Xattr>,
    pub(super) made: Made,
    /// What is made here is given an ACL by it.
    pub(super) gives_acls: bool,
    pub(super) manners: OnceLock<Manners>,
    pub(super) source_identity: DeviceInode,
    pub(super) target_identity: DeviceInode,
    /// What must be complete before this is: its listing, shares of its files, its directories, links.
    pub(super) due: AtomicUsize,
    /// Something beneath a fresh directory could not be copied.
    pub(super) failed: AtomicBool,
    /// It has its own name: it was there, or it was published.
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
        place: Place,
        attributes: Attributes,
        xattrs: Vec<Xattr>,
        made: Made,
        gives_acls: bool,
        identities: (DeviceInode, DeviceInode),
        pair: Arc<Pair>,
    ) -> Directory {
        let is_named = !matches!(place, Place::Fresh(_));
        Directory {
            parent,
            name,
            place,
            attributes,
            xattrs,
            made,
            gives_acls,
            manners: OnceLock::new(),
            source_identity: identities.0,
            target_identity: identities.1,
            due: AtomicUsize::new(1),
            failed: AtomicBool::new(false),
            is_named: AtomicBool::new(is_named),
            pair: Mutex::new(Some(pair)),
        }
    }

    /// Whether nobody else sees what is made here before the whole is complete.
    pub(super) fn is_hidden(&self) -> bool {
        !matches!(self.place, Place::Existing)
    }

    /// The name that it has in the target by now.
    pub(super) fn target_name(&self) -> &CStr {
        match &self.place {
            Place::Fresh(temporary) if !self.is_named.load(Ordering::Acquire) => temporary,
            _ => &self.name,
        }
    }

    /// The fresh directory that this one appears with; `None` where everything is replaced one by one.
    pub(super) fn fresh(self: &Arc<Directory>) -> Option<Arc<Directory>> {
        let mut directory = self;
        loop {
            match directory.place {
                Place::Fresh(_) => return Some(Arc::clone(directory)),
                Place::Existing => return None,
                Place::Within => directory = directory.parent.as_ref()?,
            }
        }
    }

    /// The path from the uppermost directory to `name` in this one, for messages: under `root`.
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
    /// Ancestors go one after the other: a tree may be deeper than the stack.
    fn drop(&mut self) {
        let mut parent = self.parent.take();
        while let Some(mut directory) = parent.and_then(Arc::into_inner) {
            parent = directory.parent.take();
        }
    }
}

/// The pairs of descriptors that are open, oldest first.
#[derive(Debug)]
pub(super) struct Descriptors {
    pairs_max: usize,
    /// How a directory of the source is opened.
    source_flags: OFlags,
    open: Mutex<VecDeque<Weak<Directory>>>,
}

impl Descriptors {
    /// `pairs_max` beside those that threads are using at the moment.
    /// `follow_links`: a directory of the source may be reached through a symbolic link.
    pub(super) fn new(pairs_max: usize, follow_links: bool) -> Descriptors {
        let source_flags = if follow_links { DIRECTORY - OFlags::NOFOLLOW } else { DIRECTORY };
        Descriptors { pairs_max: pairs_max.max(1), source_flags, open: Mutex::new(VecDeque::new()) }
    }

    /// How a directory of the source is opened.
    pub(super) fn source_flags(&self) -> OFlags {
        self.source_flags
    }

    /// Counts a pair that was opened, and closes the oldest if there are too many. The uppermost stays open: it
    /// is what the others are reached from.
    pub(super) fn opened(&self, directory: &Arc<Directory>) {
        if directory.parent.is_none() {
            return;
        }
        let mut open = lock(&self.open);
        open.push_back(Arc::downgrade(directory));
        if open.len() <= self.pairs_max {
            return;
        }
        // Most are closed already, as they are complete.
        open.retain(|directory| directory.upgrade().is_some_and(|directory| directory.is_open()));
        // Some room at once, so that this is not done for each.
        let keep = self.pairs_max - self.pairs_max / 8;
        if open.len() > keep {
            let excess = open.len() - keep;
            for directory in open.drain(..excess).filter_map(|directory| directory.upgrade()) {
                lock(&directory.pair).take();
            }
        }
    }

    /// Closes all that can be opened again.
    fn relieve(&self) {
        for directory in lock(&self.open).drain(..).filter_map(|directory| directory.upgrade()) {
            lock(&directory.pair).take();
        }
    }

    /// Calls what opens something; when the process has too many descriptors, once more with fewer.
    pub(super) fn relieving<T>(
        &self,
        mut open: impl FnMut() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match open() {
            Err(Errno::MFILE | Errno::NFILE) => {
                self.relieve();
                open()
            }
            other => other,
        }
    }

    /// Both sides of `directory`, opened again if need be.
    pub(super) fn pair(&self, directory: &Arc<Directory>, paths: &Roots) -> Result<Arc<Pair>> {
        if let Some(pair) = directory.open_pair() {
            return Ok(pair);
        }
        let mut closed = vec![directory];
        let mut pair = loop {
            let parent = closed.last().and_then(|directory| directory.parent.as_ref());
            // The uppermost is never closed.
            let Some(parent) = parent else {
                return Err(Error::io("reach", directory.path(&paths.target, None))(Errno::BADF));
            };
            match parent.open_pair() {
                Some(pair) => break pair,
                None => closed.push(parent),
            }
        };
        for directory in closed.into_iter().rev() {
            pair = Arc::new(self.open_again(
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

    /// Opens the parent of a directory that is complete, if it was closed: soon something else in it is due, and from here
    /// it is one step away.
    pub(super) fn revive_parent(&self, parent: &Arc<Directory>, child: &Pair, paths: &Roots) {
        if parent.is_open() {
            return;
        }
        // Whatever is wrong with this way, the one from above will find it or do without.
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

    fn open_again(
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
            // It may have been published between looking at its name and opening that.
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
            let opened =
                self.relieving(|| fs::openat(at, name, flags, Mode::empty())).map_err(failed)?;
            let found = identity(&fs::fstat(&opened).map_err(failed)?);
            match found == expected {
                true => Ok(opened),
                false => Err(Error::SourceChanged {
                    path: directory.path(root, None),
                    what: "another directory has its name now".into(),
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

/// Where both trees begin, for messages.
#[derive(Debug, Clone)]
pub(super) struct Roots {
    pub(super) source: PathBuf,
    pub(super) target: PathBuf,
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The directory that tests run in, on both sides.
    pub(in super::super) fn pair() -> Arc<Pair> {
        let open = || OwnedFd::from(std::fs::File::open(".").unwrap());
        Arc::new(Pair { source: open(), target: open() })
    }

    pub(in super::super) fn child(
        parent: Option<Arc<Directory>>,
        pair: &Arc<Pair>,
    ) -> Arc<Directory> {
        let stat = fs::fstat(&pair.source).unwrap();
        let (attributes, made) = (Attributes::of(&stat), Made::of(&stat));
        let (name, identities) = (c"name".to_owned(), (identity(&stat), identity(&stat)));
        let (place, pair) = (Place::Existing, Arc::clone(pair));
        Arc::new(Directory::new(
            parent,
            name,
            place,
            attributes,
            vec![],
            made,
            false,
            identities,
            pair,
        ))
    }

    #[test]
    fn the_oldest_pairs_are_closed_when_there_are_too_many() {
        let (descriptors, pair) = (Descriptors::new(8, false), pair());
        let uppermost = child(None, &pair);
        let directories: Vec<_> =
            (0..50).map(|_| child(Some(Arc::clone(&uppermost)), &pair)).collect();
        directories.iter().for_each(|directory| descriptors.opened(directory));
        let open = directories.iter().filter(|directory| directory.is_open()).count();
        assert!((1..=8).contains(&open), "{open} are open");
        assert!(directories[49].is_open() && !directories[0].is_open());
    }

    #[test]
    fn a_tree_deeper_than_the_stack_is_forgotten() {
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
