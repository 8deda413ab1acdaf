//! A thread of a tree copy: takes tasks and dispatches entries by their type.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::directory::{At, Directory, Pair, identity};
use super::links::{Claim, Name};
use super::listing::Names;
use super::shared::{Shared, Task};
use super::temporary_names::TemporaryNames;
use crate::error::{Error, Result};
use crate::file::attributes::{AttributeCopier, RefusedAttribute};

/// Stops the other threads if this one panics. They would otherwise wait for its tasks forever.
struct StopOnPanic<'a>(&'a Shared<'a>);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.queue.stop();
        }
    }
}

/// State of one thread. Its buffers are reused for all files.
pub(super) struct Worker<'a> {
    pub(super) shared: &'a Shared<'a>,
    pub(super) thread: usize,
    pub(super) copier: AttributeCopier,
    pub(super) temporary: TemporaryNames,
    pub(super) buffer: Vec<u8>,
    /// Spans of the buffered file that hold data.
    pub(super) spans: Vec<(usize, usize)>,
    pub(super) refusals: Vec<RefusedAttribute>,
    /// Opens source files with `O_NOATIME`, until refused once: only a file's owner may use it.
    use_noatime: bool,
}

impl<'a> Worker<'a> {
    pub(super) fn new(shared: &'a Shared<'a>, thread: usize) -> Worker<'a> {
        Worker {
            shared,
            thread,
            copier: shared.copier.clone(),
            temporary: TemporaryNames::new(),
            buffer: Vec::new(),
            spans: Vec::new(),
            refusals: Vec::new(),
            use_noatime: true,
        }
    }

    /// Runs tasks until no thread has work left.
    pub(super) fn run(&mut self) {
        let _stop_on_panic = StopOnPanic(self.shared);
        while let Some(task) = self.shared.queue.next(self.thread) {
            self.perform(task);
            self.shared.queue.finished();
        }
    }

    pub(super) fn perform(&mut self, task: Task) {
        match task {
            Task::Root(directory) => {
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
                    parent.pending.fetch_add(1, Ordering::Relaxed);
                    self.shared.queue.push(self.thread, rest);
                }
                if let Some((name, _)) = names.get(next)
                    && let Err(error) =
                        self.shared.check_cancelled().and_then(|()| self.directory(&parent, name))
                {
                    self.shared.failed(&parent, error);
                }
                self.shared.completed(parent);
            }
        }
    }

    pub(super) fn files(
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
            if let Err(error) = self.shared.check_cancelled().and_then(|()| self.entry(&at, kind)) {
                self.shared.failed(directory, error);
            }
            self.shared.refused(&mut self.refusals, || self.shared.target_path(&at));
        }
    }

    /// Copies an entry that the directory does not list as a directory.
    fn entry(&mut self, at: &At<'_>, kind: FileType) -> Result<()> {
        let failed = |errno| self.shared.source_error("read the attributes of", at, errno);
        let stat = match kind {
            FileType::RegularFile => None,
            _ => Some(fs::statat(&at.pair.source, at.name, self.follow()).map_err(failed)?),
        };
        let is_file = |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if let Some(stat) = stat.filter(|stat| !is_file(stat)) {
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
        // Without `NONBLOCK`, a FIFO that has the name by now would block.
        let flags = match self.shared.options.follow_links {
            true => OFlags::RDONLY | OFlags::CLOEXEC,
            false => OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        };
        let mut opened = self.open(at.pair.source.as_fd(), at.name, flags | OFlags::NONBLOCK);
        // The file has a lease, as used by file servers: wait for it.
        if let (Err(Errno::AGAIN), FileType::RegularFile) = (&opened, kind) {
            opened = self.open(at.pair.source.as_fd(), at.name, flags);
        }
        let source = opened.map_err(|errno| match errno {
            Errno::LOOP | Errno::NXIO => self.changed(at),
            errno => self.shared.source_error("open", at, errno),
        })?;
        let stat = fs::fstat(&source).map_err(failed)?;
        if !is_file(&stat) {
            return Err(self.changed(at));
        }
        self.linked(at, &stat, |worker, has_links| worker.regular(at, &source, &stat, has_links))
    }

    /// Returns the flag that follows symbolic links of the source, or not.
    fn follow(&self) -> AtFlags {
        match self.shared.options.follow_links {
            true => AtFlags::empty(),
            false => AtFlags::SYMLINK_NOFOLLOW,
        }
    }

    fn changed(&self, at: &At<'_>) -> Error {
        Error::SourceChanged {
            path: self.shared.source_path(at),
            what: "no longer a regular file".into(),
        }
    }

    /// Copies an entry, or links it to a copy made under another name.
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
        // A waiting name is pending work of its directory. Undone below if it does not wait.
        at.directory.pending.fetch_add(1, Ordering::Relaxed);
        let claim = self.shared.links.claim(inode, stat.st_nlink, at.directory, at.name);
        if !matches!(claim, Claim::Waiting) {
            at.directory.pending.fetch_sub(1, Ordering::Relaxed);
        }
        match claim {
            Claim::Waiting => Ok(()),
            Claim::Copied(first) => match self.link(at, &first)? {
                true => Ok(()),
                false => copy(self, true),
            },
            Claim::First => {
                let copied = match self.link_shared(at, inode) {
                    Ok(true) => Ok(()),
                    Ok(false) => copy(self, true),
                    Err(error) => Err(error),
                };
                let first = Name { directory: Arc::clone(at.directory), name: at.name.to_owned() };
                let waiting =
                    self.shared.links.finish_first(inode, copied.is_ok().then_some(first));
                for name in waiting {
                    let names = Arc::new(Names::one(&name.name, FileType::Unknown));
                    let task = Task::Files { directory: name.directory, names, from: 0, to: 1 };
                    self.shared.queue.push(self.thread, task);
                }
                copied
            }
        }
    }

    /// Creates an entry: in a hidden directory under its own name, else under a temporary name,
    /// which is returned.
    pub(super) fn make_at<T>(
        &mut self,
        at: &At<'_>,
        operation: &'static str,
        make: impl Fn(BorrowedFd<'_>, &CStr) -> Result<T, Errno>,
    ) -> Result<(T, Option<CString>)> {
        let (shared, target) = (self.shared, at.pair.target.as_fd());
        if at.directory.is_hidden() {
            let made = shared.descriptors.with_free_descriptors(|| make(target, at.name));
            return made
                .map(|made| (made, None))
                .map_err(|errno| shared.target_error(operation, at, errno));
        }
        loop {
            let temporary = self.temporary.name(at.name);
            match shared.descriptors.with_free_descriptors(|| make(target, &temporary)) {
                // The name is taken: try another.
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(shared.target_error(operation, at, errno)),
                Ok(made) => return Ok((made, Some(temporary))),
            }
        }
    }

    pub(super) fn open(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &CStr,
        flags: OFlags,
    ) -> Result<OwnedFd, Errno> {
        let open = |flags| {
            self.shared
                .descriptors
                .with_free_descriptors(|| fs::openat(directory, name, flags, Mode::empty()))
        };
        if self.use_noatime {
            match open(flags | OFlags::NOATIME) {
                Err(Errno::PERM) => self.use_noatime = false,
                other => return other,
            }
        }
        open(flags)
    }
}
