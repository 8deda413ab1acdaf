//! Entering a directory: opens or creates its target, and reads and distributes its entries.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{self, AtFlags, Mode};
use rustix::io::Errno;

use super::directory::{At, DIRECTORY, DeviceInode, Directory, Pair, Placement, identity};
use super::listing::{Listing, Names};
use super::meter::TreeMeter;
use super::shared::Task;
use super::worker::Worker;
use crate::error::{Error, Result};
use crate::file::attributes::{
    self, AttributeCopier, Attributes, InitialAttributes, Subject, Xattr,
};

/// Files per share of a directory. A smaller directory is copied by one thread, without contention
/// for the lock taken by file creation.
const SHARE_FILES: usize = 128;
/// Maximum number of shares of the current directory waiting for other threads. Beyond that, the
/// reader copies some itself before it reads on.
const SHARES_WAITING: usize = 16;
/// Bytes per directory read, as in the C library.
const LISTING_BYTES: usize = 32 << 10;

impl Worker<'_> {
    /// Enters a directory: opens it, creates or opens its target, and distributes its entries.
    pub(super) fn directory(&mut self, parent: &Arc<Directory>, name: &CStr) -> Result<()> {
        let shared = self.shared;
        let pair = shared.descriptors.pair(parent, &shared.roots)?;
        let at = At { directory: parent, pair: &pair, name };
        let source = shared
            .descriptors
            .with_free_descriptors(|| {
                self.open(at.pair.source.as_fd(), name, shared.descriptors.source_flags())
            })
            .map_err(|errno| shared.source_error("open the directory", &at, errno))?;
        let entered = self.enter(&at, source);
        shared.refused(&mut self.refusals, || shared.target_path(&at));
        let (directory, pair) = entered?;
        parent.pending.fetch_add(1, Ordering::Relaxed);
        if matches!(directory.placement, Placement::New(_)) {
            shared.unpublished.started(&directory);
        }
        shared.descriptors.opened(&directory);
        self.list(&directory, &pair);
        shared.completed(directory);
        Ok(())
    }

    fn enter(&mut self, at: &At<'_>, source: OwnedFd) -> Result<(Arc<Directory>, Arc<Pair>)> {
        let shared = self.shared;
        let source_failed = |(operation, errno)| shared.source_error(operation, at, errno);
        let stat =
            fs::fstat(&source).map_err(|errno| source_failed(("read the attributes of", errno)))?;
        let source_identity = identity(&stat);
        if source_identity == shared.target_identity {
            return Err(Error::Usage(format!(
                "{} is the target, reached in the source through a mount: choose another target",
                shared.source_path(at).display()
            )));
        }
        if shared.options.follow_links && is_above(at.directory, source_identity) {
            return Err(source_failed(("follow the link to a parent directory", Errno::LOOP)));
        }
        let xattrs = self
            .copier
            .xattrs(Subject::Open(source.as_fd()), &mut self.refusals)
            .map_err(source_failed)?;
        let (target, placement) = self.target_of(at)?;
        let temporary =
            if let Placement::New(temporary) = &placement { Some(temporary.clone()) } else { None };
        let pair = Pair { source, target };
        let entered =
            self.begin(at, pair, placement, Attributes::of(&stat), xattrs, source_identity);
        if let (Err(_), Some(temporary)) = (&entered, temporary) {
            let _ = fs::unlinkat(&at.pair.target, temporary, AtFlags::REMOVEDIR);
        }
        entered
    }

    /// Creates the [`Directory`] of a name that is open on both sides.
    fn begin(
        &mut self,
        at: &At<'_>,
        pair: Pair,
        placement: Placement,
        attributes: Attributes,
        xattrs: Vec<Xattr>,
        source_identity: DeviceInode,
    ) -> Result<(Arc<Directory>, Arc<Pair>)> {
        let shared = self.shared;
        let failed = |errno| shared.target_error("create the directory", at, errno);
        let stat = fs::fstat(&pair.target).map_err(failed)?;
        let target_identity = identity(&stat);
        if target_identity == shared.source_identity {
            return Err(Error::Usage(format!(
                "{} is the source: choose another target",
                shared.target_path(at).display()
            )));
        }
        if matches!(placement, Placement::Existing)
            && target_identity.0 != at.directory.target_identity.0
        {
            shared
                .unpublished
                .publishes_on(target_identity.0, pair.target.as_fd())
                .map_err(failed)?;
        }
        let mut made = InitialAttributes::of(&stat);
        let mut has_default_acl = false;
        if !matches!(placement, Placement::InsideNew) {
            (made.may_have_acl, has_default_acl) =
                inherited_acls(&shared.copier, &placement, &pair).map_err(failed)?;
        }
        let pair = Arc::new(pair);
        let (parent, name) = (Some(Arc::clone(at.directory)), at.name.to_owned());
        let identities = (source_identity, target_identity);
        let opened = Arc::clone(&pair);
        let directory = Directory::new(
            parent,
            name,
            placement,
            attributes,
            xattrs,
            made,
            has_default_acl,
            identities,
            opened,
        );
        Ok((Arc::new(directory), pair))
    }

    /// Opens the directory's target, or creates it.
    fn target_of(&mut self, at: &At<'_>) -> Result<(OwnedFd, Placement)> {
        let shared = self.shared;
        let failed = |errno| shared.target_error("create the directory", at, errno);
        let open = |name: &CStr| {
            shared.descriptors.with_free_descriptors(|| {
                fs::openat(&at.pair.target, name, DIRECTORY, Mode::empty())
            })
        };
        if at.directory.is_hidden() {
            fs::mkdirat(&at.pair.target, at.name, Mode::RWXU).map_err(failed)?;
            return Ok((open(at.name).map_err(failed)?, Placement::InsideNew));
        }
        match open(at.name) {
            Ok(target) => Ok((target, Placement::Existing)),
            Err(Errno::NOENT) => {
                let make =
                    |target: BorrowedFd<'_>, name: &CStr| fs::mkdirat(target, name, Mode::RWXU);
                let ((), temporary) = self.make_at(at, "create the directory", make)?;
                let temporary = temporary.unwrap_or_else(|| at.name.to_owned());
                match open(&temporary) {
                    Ok(target) => Ok((target, Placement::New(temporary))),
                    Err(errno) => {
                        let _ = fs::unlinkat(&at.pair.target, &temporary, AtFlags::REMOVEDIR);
                        Err(failed(errno))
                    }
                }
            }
            Err(Errno::NOTDIR | Errno::LOOP) => {
                let path = shared.target_path(at);
                Err(Error::io("replace the non-directory", path)(Errno::NOTDIR))
            }
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Reads a directory and distributes its entries.
    pub(super) fn list(&mut self, directory: &Arc<Directory>, pair: &Pair) {
        TreeMeter::count(&self.shared.meter.directories, 1);
        let root = self.shared.source_identity;
        if self.shared.options.one_file_system && directory.source_identity.0 != root.0 {
            return;
        }
        let mut buffer = [MaybeUninit::<u8>::uninit(); LISTING_BYTES];
        let mut listing = Listing::new(pair.source.as_fd(), &mut buffer);
        let mut directories = Names::default();
        loop {
            let mut files = Names::default();
            let piece = listing.piece(&mut files, &mut directories);
            self.distribute(directory, pair, files);
            match piece {
                Ok(true) if !self.shared.queue.is_stopped() => {}
                Ok(_) => break,
                Err(errno) => {
                    let path = directory.path(&self.shared.roots.source, None);
                    self.shared.failed(directory, Error::io("read the directory", path)(errno));
                    break;
                }
            }
        }
        self.push_directories(directory, directories);
    }

    /// Copies a few files directly. Many files are queued in shares for idle threads.
    fn distribute(&mut self, directory: &Arc<Directory>, pair: &Pair, mut files: Names) {
        files.sort_by_inode();
        let length = files.len();
        if length <= SHARE_FILES {
            return self.files(directory, pair, &files, 0, length);
        }
        let names = Arc::new(files);
        for from in (0..length).step_by(SHARE_FILES) {
            let to = length.min(from + SHARE_FILES);
            directory.pending.fetch_add(1, Ordering::Relaxed);
            let task = Task::Files {
                directory: Arc::clone(directory),
                names: Arc::clone(&names),
                from,
                to,
            };
            self.shared.queue.push(self.thread, task);
        }
        let is_own = |task: &Task| matches!(task, Task::Files { directory: of, .. } if Arc::ptr_eq(of, directory));
        while let Some(task) =
            self.shared.queue.next_own_beyond(self.thread, SHARES_WAITING, is_own)
        {
            self.perform(task);
            self.shared.queue.finished();
        }
    }

    pub(super) fn push_directories(&mut self, parent: &Arc<Directory>, mut names: Names) {
        if names.len() == 0 {
            return;
        }
        names.sort_by_inode();
        parent.pending.fetch_add(1, Ordering::Relaxed);
        let task =
            Task::Directories { parent: Arc::clone(parent), names: Arc::new(names), next: 0 };
        self.shared.queue.push(self.thread, task);
    }
}

/// Returns true if `source_identity` is `directory` or one of its parents.
fn is_above(directory: &Arc<Directory>, source_identity: DeviceInode) -> bool {
    std::iter::successors(Some(directory), |directory| directory.parent.as_ref())
        .any(|above| above.source_identity == source_identity)
}

/// Returns whether the directory may have an ACL that the source lacks, and whether files created
/// in it inherit an ACL. If extended attributes are preserved, a new directory loses its default
/// ACL here, so that its contents match the source.
pub(super) fn inherited_acls(
    copier: &AttributeCopier,
    placement: &Placement,
    pair: &Pair,
) -> Result<(bool, bool), Errno> {
    let target = pair.target.as_fd();
    let has_default_acl = attributes::has_default_acl(target);
    match placement {
        _ if !copier.preserve().xattrs => Ok((false, has_default_acl)),
        Placement::Existing => Ok((true, has_default_acl)),
        _ if has_default_acl => attributes::remove_default_acl(target).map(|()| (true, false)),
        _ => Ok((false, false)),
    }
}
