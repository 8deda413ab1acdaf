//! One thread of a copy: takes tasks, enters directories, and leads each entry to the code for its kind.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::directory::{DIRECTORY, DeviceInode, Directory, Pair, Place, identity};
use super::links::{Claim, Name};
use super::listing::{Listing, Names};
use super::meter::TreeMeter;
use super::shared::{Shared, Task};
use super::temporary::Temporary;
use crate::error::{Error, Result};
use crate::file::attributes::{self, Attributes, Keeper, Made, Refusal, Subject, Xattr};

/// Files of one directory that are given to a thread at a time. Directories with fewer have one thread, which has the lock
/// that creating takes to itself.
const SHARE_FILES: usize = 128;
/// Shares of the directory that is being read that wait for other threads; beyond that the reader copies some
/// itself before it reads on.
const SHARES_WAITING: usize = 16;
/// Bytes of one call that reads a directory: as the C library has it.
const LISTING_BYTES: usize = 32 << 10;

/// A name in a directory that is open on both sides.
#[derive(Debug, Clone, Copy)]
pub(super) struct At<'a> {
    pub(super) directory: &'a Arc<Directory>,
    pub(super) pair: &'a Pair,
    pub(super) name: &'a CStr,
}

/// Ends the other threads, too, if this one ends by a panic: what it had taken would be waited for without end.
struct EndsAll<'a>(&'a Shared<'a>);

impl Drop for EndsAll<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.queue.stop();
        }
    }
}

/// One thread's tools. Its buffers grow once and are used for all files.
pub(super) struct Worker<'a> {
    pub(super) shared: &'a Shared<'a>,
    thread: usize,
    pub(super) keeper: Keeper,
    pub(super) temporary: Temporary,
    pub(super) buffer: Vec<u8>,
    /// Where the data of the file in the buffer begins and ends.
    pub(super) spans: Vec<(usize, usize)>,
    pub(super) refusals: Vec<Refusal>,
    /// Reading leaves no trace at the source, until that is refused once: it is for the owner of a file only.
    leave_no_trace: bool,
}

impl<'a> Worker<'a> {
    pub(super) fn new(shared: &'a Shared<'a>, thread: usize) -> Worker<'a> {
        Worker {
            shared,
            thread,
            keeper: shared.keeper.clone(),
            temporary: Temporary::new(),
            buffer: Vec::new(),
            spans: Vec::new(),
            refusals: Vec::new(),
            leave_no_trace: true,
        }
    }

    /// Until nothing is left to do, for any thread.
    pub(super) fn run(&mut self) {
        let _ends = EndsAll(self.shared);
        while let Some(task) = self.shared.queue.next(self.thread) {
            self.perform(task);
            self.shared.queue.finished();
        }
    }

    fn perform(&mut self, task: Task) {
        match task {
            Task::Uppermost(directory) => {
                match self.shared.descriptors.pair(&directory, &self.shared.roots) {
                    Ok(pair) => self.list(&directory, &pair),
                    Err(error) => self.shared.failed(&directory, error),
                }
                self.shared.completed(directory);
            }
            Task::Files { directory, names, from, to } => {
                match self.shared.descriptors.pair(&directory, &self.shared.roots) {
                    Ok(pair) => self.files(&directory, &pair, &names, from, to),
                    Err(error) => self.shared.failed(&directory, error),
                }
                self.shared.completed(directory);
            }
            Task::Directories { parent, names, next } => {
                if next + 1 < names.len() {
                    let rest = Task::Directories {
                        parent: Arc::clone(&parent),
                        names: Arc::clone(&names),
                        next: next + 1,
                    };
                    parent.due.fetch_add(1, Ordering::Relaxed);
                    self.shared.queue.push(self.thread, rest);
                }
                if let Some((name, _)) = names.get(next)
                    && let Err(error) =
                        self.shared.go_on().and_then(|()| self.directory(&parent, name))
                {
                    self.shared.failed(&parent, error);
                }
                self.shared.completed(parent);
            }
        }
    }

    fn files(
        &mut self,
        directory: &Arc<Directory>,
        pair: &Pair,
        names: &Names,
        from: usize,
        to: usize,
    ) {
        for index in from..to {
            let Some((name, kind)) = names.get(index) else { break };
            if self.shared.queue.is_stopped() {
                break;
            }
            let at = At { directory, pair, name };
            if let Err(error) = self.shared.go_on().and_then(|()| self.entry(&at, kind)) {
                self.shared.failed(directory, error);
            }
            self.shared.refused(&mut self.refusals, || self.shared.target_path(&at));
        }
    }

    /// Copies one name that the directory says is no directory.
    fn entry(&mut self, at: &At<'_>, kind: FileType) -> Result<()> {
        let look = |errno| self.shared.source_error("look at", at, errno);
        let looked = match kind {
            FileType::RegularFile => None,
            _ => Some(
                fs::statat(&at.pair.source, at.name, AtFlags::SYMLINK_NOFOLLOW).map_err(look)?,
            ),
        };
        let is_file = |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if let Some(stat) = looked.filter(|stat| !is_file(stat)) {
            return self.linked(at, &stat, |worker, has_links| {
                match FileType::from_raw_mode(stat.st_mode) {
                    FileType::Symlink => worker.symlink(at, &stat, has_links),
                    FileType::Directory => {
                        worker.push_directories(
                            at.directory,
                            Names::one(at.name, FileType::Directory),
                        );
                        Ok(())
                    }
                    _ => worker.special(at, &stat, has_links),
                }
            });
        }
        // A FIFO that has the name by now would be waited for without `NONBLOCK`.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut opened = self.open(at.pair.source.as_fd(), at.name, flags | OFlags::NONBLOCK);
        // Somebody has a lease on it, as file servers do: that is worth waiting for.
        if let (Err(Errno::AGAIN), FileType::RegularFile) = (&opened, kind) {
            opened = self.open(at.pair.source.as_fd(), at.name, flags);
        }
        let source = opened.map_err(|errno| match errno {
            Errno::LOOP | Errno::NXIO => self.changed(at),
            errno => self.shared.source_error("open", at, errno),
        })?;
        let stat = fs::fstat(&source).map_err(look)?;
        if !is_file(&stat) {
            return Err(self.changed(at));
        }
        self.linked(at, &stat, |worker, has_links| worker.regular(at, &source, &stat, has_links))
    }

    fn changed(&self, at: &At<'_>) -> Error {
        Error::SourceChanged {
            path: self.shared.source_path(at),
            what: "it is no longer a regular file".into(),
        }
    }

    /// Copies what `stat` is of, or links it to what was copied under another name.
    fn linked(
        &mut self,
        at: &At<'_>,
        stat: &Stat,
        copy: impl FnOnce(&mut Self, bool) -> Result<()>,
    ) -> Result<()> {
        if stat.st_nlink <= 1 || FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            return copy(self, false);
        }
        let inode = identity(stat);
        // What waits here is due in its directory; if it need not wait, that is taken back.
        at.directory.due.fetch_add(1, Ordering::Relaxed);
        let claim = self.shared.links.claim(inode, stat.st_nlink, at.directory, at.name);
        if !matches!(claim, Claim::Noted) {
            at.directory.due.fetch_sub(1, Ordering::Relaxed);
        }
        match claim {
            Claim::Noted => Ok(()),
            Claim::Copied(first) => match self.link(at, &first)? {
                true => Ok(()),
                false => copy(self, true),
            },
            Claim::First => {
                let copied = copy(self, true);
                let first = Name { directory: Arc::clone(at.directory), name: at.name.to_owned() };
                let waiting = self.shared.links.settle(inode, copied.is_ok().then_some(first));
                for name in waiting {
                    let names = Arc::new(Names::one(&name.name, FileType::Unknown));
                    let task = Task::Files { directory: name.directory, names, from: 0, to: 1 };
                    self.shared.queue.push(self.thread, task);
                }
                copied
            }
        }
    }

    /// Enters a directory: opens it, makes or opens its target, and shares out what is in it.
    fn directory(&mut self, parent: &Arc<Directory>, name: &CStr) -> Result<()> {
        let shared = self.shared;
        let pair = shared.descriptors.pair(parent, &shared.roots)?;
        let at = At { directory: parent, pair: &pair, name };
        let source = shared
            .descriptors
            .relieving(|| self.open(at.pair.source.as_fd(), name, DIRECTORY))
            .map_err(|errno| shared.source_error("open the directory", &at, errno))?;
        let entered = self.enter(&at, source);
        shared.refused(&mut self.refusals, || shared.target_path(&at));
        let (directory, pair) = entered?;
        parent.due.fetch_add(1, Ordering::Relaxed);
        if matches!(directory.place, Place::Fresh(_)) {
            shared.unpublished.begun(&directory);
        }
        shared.descriptors.opened(&directory);
        self.list(&directory, &pair);
        shared.completed(directory);
        Ok(())
    }

    fn enter(&mut self, at: &At<'_>, source: OwnedFd) -> Result<(Arc<Directory>, Arc<Pair>)> {
        let shared = self.shared;
        let source_failed = |(operation, errno)| shared.source_error(operation, at, errno);
        let stat = fs::fstat(&source).map_err(|errno| source_failed(("look at", errno)))?;
        let source_identity = identity(&stat);
        if source_identity == shared.target_identity {
            return Err(Error::Usage(format!(
                "{} is the target, which lies in the source by way of a mount: name another target",
                shared.source_path(at).display()
            )));
        }
        let xattrs = self
            .keeper
            .xattrs(Subject::Open(source.as_fd()), &mut self.refusals)
            .map_err(source_failed)?;
        let (target, place) = self.target_of(at)?;
        let temporary =
            if let Place::Fresh(temporary) = &place { Some(temporary.clone()) } else { None };
        let pair = Pair { source, target };
        let entered = self.begin(at, pair, place, Attributes::of(&stat), xattrs, source_identity);
        if let (Err(_), Some(temporary)) = (&entered, temporary) {
            let _ = fs::unlinkat(&at.pair.target, temporary, AtFlags::REMOVEDIR);
        }
        entered
    }

    /// Looks at the target of a directory, which is open on both sides now.
    fn begin(
        &mut self,
        at: &At<'_>,
        pair: Pair,
        place: Place,
        attributes: Attributes,
        xattrs: Vec<Xattr>,
        source_identity: DeviceInode,
    ) -> Result<(Arc<Directory>, Arc<Pair>)> {
        let shared = self.shared;
        let failed = |errno| shared.target_error("make the directory", at, errno);
        let stat = fs::fstat(&pair.target).map_err(failed)?;
        let target_identity = identity(&stat);
        if target_identity == shared.source_identity {
            return Err(Error::Usage(format!(
                "{} is the source: a tree is not merged into itself; name another target",
                shared.target_path(at).display()
            )));
        }
        if matches!(place, Place::Existing) && target_identity.0 != at.directory.target_identity.0 {
            shared
                .unpublished
                .publishes_on(target_identity.0, pair.target.as_fd())
                .map_err(failed)?;
        }
        let mut made = Made::of(&stat);
        let mut gives_acls = false;
        if !matches!(place, Place::Within) {
            (made.may_have_acl, gives_acls) =
                inherited_acls(&shared.keeper, &place, &pair).map_err(failed)?;
        }
        let pair = Arc::new(pair);
        let (parent, name) = (Some(Arc::clone(at.directory)), at.name.to_owned());
        let identities = (source_identity, target_identity);
        let opened = Arc::clone(&pair);
        let directory = Directory::new(
            parent, name, place, attributes, xattrs, made, gives_acls, identities, opened,
        );
        Ok((Arc::new(directory), pair))
    }

    /// The directory in the target: the one that is there, or a new one.
    fn target_of(&mut self, at: &At<'_>) -> Result<(OwnedFd, Place)> {
        let shared = self.shared;
        let failed = |errno| shared.target_error("make the directory", at, errno);
        let open = |name: &CStr| {
            shared
                .descriptors
                .relieving(|| fs::openat(&at.pair.target, name, DIRECTORY, Mode::empty()))
        };
        if at.directory.is_hidden() {
            fs::mkdirat(&at.pair.target, at.name, Mode::RWXU).map_err(failed)?;
            return Ok((open(at.name).map_err(failed)?, Place::Within));
        }
        match open(at.name) {
            Ok(target) => Ok((target, Place::Existing)),
            Err(Errno::NOENT) => {
                let make =
                    |target: BorrowedFd<'_>, name: &CStr| fs::mkdirat(target, name, Mode::RWXU);
                let ((), temporary) = self.make_at(at, "make the directory", make)?;
                let temporary = temporary.unwrap_or_else(|| at.name.to_owned());
                match open(&temporary) {
                    Ok(target) => Ok((target, Place::Fresh(temporary))),
                    Err(errno) => {
                        let _ = fs::unlinkat(&at.pair.target, &temporary, AtFlags::REMOVEDIR);
                        Err(failed(errno))
                    }
                }
            }
            Err(Errno::NOTDIR | Errno::LOOP) => {
                let path = shared.target_path(at);
                Err(Error::io("make a directory in the place of what is no directory,", path)(
                    Errno::NOTDIR,
                ))
            }
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Makes something: under its own name where nobody sees it, else under a temporary one, which is given back.
    pub(super) fn make_at<T>(
        &mut self,
        at: &At<'_>,
        operation: &'static str,
        make: impl Fn(BorrowedFd<'_>, &CStr) -> Result<T, Errno>,
    ) -> Result<(T, Option<CString>)> {
        let (shared, target) = (self.shared, at.pair.target.as_fd());
        if at.directory.is_hidden() {
            let made = shared.descriptors.relieving(|| make(target, at.name));
            return made
                .map(|made| (made, None))
                .map_err(|errno| shared.target_error(operation, at, errno));
        }
        loop {
            let temporary = self.temporary.name(at.name);
            match shared.descriptors.relieving(|| make(target, &temporary)) {
                // Somebody has just this name: another one.
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(shared.target_error(operation, at, errno)),
                Ok(made) => return Ok((made, Some(temporary))),
            }
        }
    }

    /// Reads a directory and shares out what is in it.
    pub(super) fn list(&mut self, directory: &Arc<Directory>, pair: &Pair) {
        TreeMeter::count(&self.shared.meter.directories, 1);
        let uppermost = self.shared.source_identity;
        if self.shared.options.one_file_system && directory.source_identity.0 != uppermost.0 {
            return;
        }
        let mut buffer = [MaybeUninit::<u8>::uninit(); LISTING_BYTES];
        let mut listing = Listing::new(pair.source.as_fd(), &mut buffer);
        let mut directories = Names::default();
        loop {
            let mut files = Names::default();
            let piece = listing.piece(&mut files, &mut directories);
            self.share_out(directory, pair, files);
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

    /// What is few is copied at once. Of many files, shares are left to whoever has nothing to do.
    fn share_out(&mut self, directory: &Arc<Directory>, pair: &Pair, mut files: Names) {
        files.sort_by_inode();
        let length = files.len();
        if length <= SHARE_FILES {
            return self.files(directory, pair, &files, 0, length);
        }
        let names = Arc::new(files);
        for from in (0..length).step_by(SHARE_FILES) {
            let to = length.min(from + SHARE_FILES);
            directory.due.fetch_add(1, Ordering::Relaxed);
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

    fn push_directories(&mut self, parent: &Arc<Directory>, mut names: Names) {
        if names.len() == 0 {
            return;
        }
        names.sort_by_inode();
        parent.due.fetch_add(1, Ordering::Relaxed);
        let task =
            Task::Directories { parent: Arc::clone(parent), names: Arc::new(names), next: 0 };
        self.shared.queue.push(self.thread, task);
    }

    fn open(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &CStr,
        flags: OFlags,
    ) -> Result<OwnedFd, Errno> {
        let open = |flags| {
            self.shared.descriptors.relieving(|| fs::openat(directory, name, flags, Mode::empty()))
        };
        if self.leave_no_trace {
            match open(flags | OFlags::NOATIME) {
                Err(Errno::PERM) => self.leave_no_trace = false,
                other => return other,
            }
        }
        open(flags)
    }
}

/// Whether a directory may have an ACL that the source has not, and whether it gives ACLs to what is made in it. One that
/// was just made gives none after this: in a fresh directory everything is as in the source.
pub(super) fn inherited_acls(
    keeper: &Keeper,
    place: &Place,
    pair: &Pair,
) -> Result<(bool, bool), Errno> {
    let target = pair.target.as_fd();
    let gives_acls = attributes::gives_acls(target);
    match place {
        _ if !keeper.preserve().xattrs => Ok((false, gives_acls)),
        Place::Existing => Ok((true, gives_acls)),
        _ if gives_acls => attributes::take_default_acl(target).map(|()| (true, false)),
        _ => Ok((false, false)),
    }
}

impl Shared<'_> {
    /// One thing less is due in a directory. If it was the last, the directory is complete, and perhaps those above.
    pub(super) fn completed(&self, directory: Arc<Directory>) {
        let mut next = Some(directory);
        while let Some(directory) = next {
            if directory.due.fetch_sub(1, Ordering::AcqRel) > 1 || self.queue.is_stopped() {
                break;
            }
            next = self.complete(&directory);
        }
    }

    /// Brings attributes to a directory that has everything in it; gives back the parent, if nothing is held back.
    fn complete(&self, directory: &Arc<Directory>) -> Option<Arc<Directory>> {
        match self.descriptors.pair(directory, &self.roots) {
            Ok(pair) => {
                if let Err(error) = self.keep_attributes(directory, &pair) {
                    self.failed(directory, error);
                }
                if let Some(parent) = &directory.parent {
                    self.descriptors.revive_parent(parent, &pair, &self.roots);
                }
            }
            Err(error) => self.failed(directory, error),
        }
        match directory.place {
            Place::Fresh(_) => self.publish_tree(directory),
            Place::Existing | Place::Within => directory.parent.clone(),
        }
    }

    fn keep_attributes(&self, directory: &Directory, pair: &Pair) -> Result<()> {
        let mut refusals = Vec::new();
        let target = Subject::Open(pair.target.as_fd());
        let kept = self.keeper.keep(
            &directory.attributes,
            &directory.xattrs,
            target,
            &directory.made,
            true,
            &mut refusals,
        );
        self.refused(&mut refusals, || directory.path(&self.roots.target, None));
        kept.map_err(|(operation, errno)| {
            super::shared::target_error(operation, directory.path(&self.roots.target, None), errno)
        })
    }
}
