//! State shared by the threads of a tree copy: options, queues, errors.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use rustix::io::Errno;

use super::TreeOptions;
use super::directory::{At, Descriptors, DeviceInode, Directory, Roots};
use super::links::Links;
use super::listing::Names;
use super::meter::TreeMeter;
use super::queue::{Queue, lock};
use super::unpublished::Unpublished;
use crate::error::{Error, Result};
use crate::file::{
    self,
    attributes::{AttributeCopier, RefusedAttribute},
};
use crate::policy::Durability;
use crate::report::{EngineUse, NotKept};

/// A unit of work.
#[derive(Debug)]
pub(super) enum Task {
    /// Lists the root directory, which is open.
    Root(Arc<Directory>),
    /// Copies the entries `from..to`, none of them listed as a directory.
    Files { directory: Arc<Directory>, names: Arc<Names>, from: usize, to: usize },
    /// Enters these directories, starting at `next`.
    Directories { parent: Arc<Directory>, names: Arc<Names>, next: usize },
}

/// A list that stores the first items and counts the rest.
#[derive(Debug)]
pub(super) struct Bounded<T> {
    pub(super) listed: Vec<T>,
    pub(super) total: u64,
    max: usize,
}

impl<T> Bounded<T> {
    pub(super) fn new(max: usize) -> Bounded<T> {
        Bounded { listed: Vec::new(), total: 0, max }
    }

    fn push(&mut self, thing: impl FnOnce() -> T) {
        self.total += 1;
        if self.listed.len() < self.max {
            self.listed.push(thing());
        }
    }
}

/// State of one tree copy.
#[derive(Debug)]
pub(super) struct Shared<'a> {
    pub(super) options: &'a TreeOptions,
    pub(super) meter: &'a TreeMeter,
    pub(super) copier: AttributeCopier,
    /// Options for files that are not small.
    pub(super) file: file::Options,
    /// True while small files may be shared. Cleared at the first refusal.
    pub(super) may_share: AtomicBool,
    /// Engines used, except `read-write` for small files.
    pub(super) used: Mutex<Vec<EngineUse>>,
    pub(super) roots: Roots,
    /// Parent directory of a new root.
    pub(super) target_parent: Option<OwnedFd>,
    pub(super) source_identity: DeviceInode,
    pub(super) target_identity: DeviceInode,
    pub(super) queue: Queue<Task>,
    pub(super) descriptors: Descriptors,
    pub(super) links: Links,
    pub(super) unpublished: Unpublished,
    pub(super) errors: Mutex<Bounded<Error>>,
    pub(super) not_kept: Mutex<Bounded<NotKept>>,
}

/// Adds an engine's bytes to the list.
pub(super) fn add_used(all: &mut Vec<EngineUse>, used: EngineUse) {
    match all.iter_mut().find(|other| other.engine == used.engine && other.copies == used.copies) {
        Some(other) => other.bytes += used.bytes,
        None => all.push(used),
    }
}

impl Shared<'_> {
    pub(super) fn used(&self, used: EngineUse) {
        add_used(&mut lock(&self.used), used);
    }

    pub(super) fn is_durable(&self) -> bool {
        self.options.durability != Durability::None
    }

    pub(super) fn source_path(&self, at: &At<'_>) -> PathBuf {
        at.directory.path(&self.roots.source, Some(at.name))
    }

    pub(super) fn target_path(&self, at: &At<'_>) -> PathBuf {
        at.directory.path(&self.roots.target, Some(at.name))
    }

    pub(super) fn source_error(&self, operation: &'static str, at: &At<'_>, errno: Errno) -> Error {
        Error::io(operation, self.source_path(at))(errno)
    }

    pub(super) fn target_error(&self, operation: &'static str, at: &At<'_>, errno: Errno) -> Error {
        target_error(operation, self.target_path(at), errno)
    }

    /// Records an error of an entry in `directory`. The copy goes on, unless it was cancelled, or
    /// the disk is full and `keep_going` is not set.
    pub(super) fn failed(&self, directory: &Arc<Directory>, error: Error) {
        if matches!(error, Error::Cancelled { .. }) {
            return self.queue.stop();
        }
        let is_hopeless = matches!(error, Error::NoSpace { .. });
        lock(&self.errors).push(|| error);
        if let Some(root) = directory.new_root() {
            root.failed.store(true, Ordering::Relaxed);
        }
        if is_hopeless && !self.options.keep_going {
            self.queue.stop();
        }
    }

    /// Records the attributes refused for one target.
    pub(super) fn refused(&self, refusals: &mut Vec<RefusedAttribute>, path: impl Fn() -> PathBuf) {
        if refusals.is_empty() {
            return;
        }
        let mut not_kept = lock(&self.not_kept);
        for refusal in refusals.drain(..) {
            not_kept.push(|| refusal.at(&path()));
        }
    }

    /// Returns an error if the copy was cancelled.
    pub(super) fn check_cancelled(&self) -> Result<()> {
        match self.meter.is_cancelled() {
            true => Err(Error::Cancelled { left: String::new() }),
            false => Ok(()),
        }
    }
}

/// Creates a target error, using `NoSpace` for a full disk.
pub(super) fn target_error(operation: &'static str, path: PathBuf, errno: Errno) -> Error {
    match errno {
        Errno::NOSPC | Errno::DQUOT => Error::NoSpace { path, needed_bytes: 0 },
        errno => Error::io(operation, path)(errno),
    }
}
