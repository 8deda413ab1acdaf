//! Objects open for writing. This file has typed sessions: the root is a Rust type, and the borrow
//! checker keeps references into the object from outliving a commit.

mod migration;
pub(super) mod open;
mod protected;
pub(super) mod raw;

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

pub use migration::Migrations;
use open::{AnySession, OpenSession};
pub use protected::{
    Protected, ProtectedRawSession, ProtectedSession, RawWriteScope, WritePass, WritePermit,
    WriteScope,
};
pub use raw::{RawRoot, RawSession};

use crate::address::AccessKey;
use crate::alloc::Heap;
use crate::api::application::ApplicationKey;
use crate::api::info::ObjectInfo;
use crate::api::inner::StoreInner;
use crate::api::snapshot::root::{check_root, root_as};
use crate::commit::WriteOptions;
use crate::error::Result;
use crate::layout::OBJECTS;
use crate::object::ObjectMap;
use crate::persist::{Mut, Persist};

/// An object open for writing. Dereferences to the root.
///
/// Stores go to private copies of the pages. Nothing reaches the file before
/// [`commit`](Session::commit), which makes all changes durable at once. If the session ends by
/// drop, kill or power failure, uncommitted changes are lost.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// let store = evermap::Store::create_new(directory.path().join("store"))?;
/// store.create::<u64, _>("counter", 0)?;
/// let mut counter = store.write::<u64>("counter")?;
/// *counter.root_mut() += 1;
/// counter.commit()?;
/// *counter.root_mut() += 1;
/// counter.rollback()?;
/// counter.close()?;
/// assert_eq!(*store.read::<u64>("counter")?, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// References into the object cannot outlive a commit:
///
/// ```compile_fail
/// # let store = evermap::Store::open("store")?;
/// let mut session = store.write::<evermap::PVec<u64>>("numbers")?;
/// let first = &session[0];
/// session.commit()?;
/// println!("{first}");
/// # Ok::<(), evermap::Error>(())
/// ```
#[must_use = "a session that ends discards uncommitted changes"]
pub struct Session<T> {
    open: OpenSession,
    root: NonNull<T>,
}

// SAFETY: a session owns its mapping, and the root is accessible only through it.
unsafe impl<T: Send> Send for Session<T> {}
// SAFETY: a shared reference to a session gives access to `&T` and to the heap, which is
// thread-safe.
unsafe impl<T: Sync> Sync for Session<T> {}

impl<T: Persist> Session<T> {
    pub(in crate::api) fn open(
        inner: &Arc<StoreInner>,
        name: &str,
        options: &WriteOptions,
        application: Option<ApplicationKey>,
    ) -> Result<Session<T>> {
        let (open, root) = inner.write_object(name, options, application, |superblock| {
            root_as::<T>(inner, name, superblock)
        })?;
        // SAFETY: the session maps the object as of its superblock.
        unsafe {
            check_root(
                root,
                open.superblock(),
                &inner.path_in(OBJECTS, open.superblock().object_uuid),
            )?
        };
        Ok(Session { open, root })
    }

    /// Wraps an open object whose root is a `T`.
    pub(in crate::api) fn of(open: OpenSession, root: NonNull<T>) -> Session<T> {
        Session { open, root }
    }

    /// Puts the whole object under a key until the session ends, including memory that it gains
    /// later. From now on only threads with the key's rights may access it. The library's own work
    /// (commit, rollback, close, inspection) needs no rights. The program's use of the root and the
    /// heap does.
    ///
    /// If the session is also to be [protected](Session::protect), set the key first. A write scope
    /// then opens pages, and grants no rights to the key.
    ///
    /// # Errors
    /// When the kernel refuses, or the object has a key already.
    pub fn set_protection_key(&mut self, key: &AccessKey) -> Result<()> {
        self.open.set_protection_key(key)
    }

    /// Returns the object's name when it was opened.
    pub fn name(&self) -> &str {
        self.open.name()
    }

    /// Like [`RawSession::regions`](crate::RawSession::regions).
    pub fn regions(&self) -> Vec<(u64, u64)> {
        self.open.regions()
    }

    /// Returns the root for editing.
    pub fn root_mut(&mut self) -> Mut<'_, T> {
        // SAFETY: the root's type was checked at opening, the mapping lives in the session, and
        // its exclusive borrow covers the whole object.
        unsafe { Mut::from_raw(self.open.heap(), self.root) }
    }

    /// Returns the object's allocator, for code that manages its own memory in the object.
    pub fn heap(&self) -> &Heap {
        self.open.heap()
    }

    /// Commits all changes since the last commit, all of them or none. They are durable according
    /// to the level that the session was opened with, by default when this returns. Returns false
    /// if nothing had changed.
    ///
    /// Costs a page-table scan, a comparison of the changed pages and one flush. Needs a second
    /// flush if the object grew, and some more at the first commit of a session. Now and then a
    /// checkpoint follows a commit, see [`WriteOptions`].
    ///
    /// # Errors
    /// `DiskFull`, `LogFull` and other errors before the commit point change nothing: make room and
    /// commit again, or roll back. After `DurabilityUnknown` the session is unusable. Opening the
    /// object again finds the last durable commit. `Damaged` if background verification found
    /// damage. In that case nothing was committed.
    pub fn commit(&mut self) -> Result<bool> {
        self.open.commit()
    }

    /// Discards all changes since the last commit.
    ///
    /// # Errors
    /// `DurabilityUnknown` after a failed flush: the last commit is unknown then. When the kernel
    /// refuses to release the pages, do not use the session any more.
    pub fn rollback(&mut self) -> Result<()> {
        self.open.rollback()
    }

    /// Ends the session and discards uncommitted changes. Emits a `tracing` event at warn level if
    /// there are any: commit or [roll back](Session::rollback) first. Dropping the session does the
    /// same, but cannot return errors.
    ///
    /// # Errors
    /// At level `Commit`, all commits are durable whatever this returns, and the next opening
    /// finishes the work. At the other levels, commits since the last flush may be lost after an
    /// error. Call [`sync`](Session::sync) first to be able to retry.
    pub fn close(mut self) -> Result<()> {
        self.open.end()
    }

    /// Makes all commits durable, at any durability level. At level `Commit` they already are.
    ///
    /// # Errors
    /// `DiskFull` and other errors that lose nothing: try again. `DurabilityUnknown` as for
    /// [`commit`](Session::commit).
    pub fn sync(&mut self) -> Result<()> {
        self.open.sync()
    }

    /// Writes all commits to the object file and empties the log. A long session does this by
    /// itself now and then. Returns false while other processes that read the object prevent it.
    ///
    /// # Errors
    /// Same errors as [`sync`](Session::sync).
    pub fn checkpoint(&mut self) -> Result<bool> {
        self.open.checkpoint()
    }

    /// Reserves addresses and disk space for a block of `bytes`, or many smaller ones, so that
    /// allocating them does not fail on a full disk. Commits. Closing this session keeps the
    /// reserved space. Closing a later session may release what is still free.
    ///
    /// # Errors
    /// `DiskFull`, `OutOfAddresses`, and the errors of [`commit`](Session::commit).
    pub fn reserve(&mut self, bytes: u64) -> Result<()> {
        self.open.reserve(bytes)
    }

    /// Commits, and returns up to `bytes_max` of the file's unused end to the file system. Returns
    /// the number of bytes released, which is lower if less is unused, and 0 while other processes
    /// read the object. To release free space in the middle of the file, use
    /// [`shrink`](Session::shrink).
    ///
    /// # Errors
    /// Same errors as [`commit`](Session::commit).
    pub fn release(&mut self, bytes_max: u64) -> Result<u64> {
        self.open.release(bytes_max)
    }

    /// Commits, and releases all disk space that the object does not need: the unused end of its
    /// file, and free chunks of 64 KiB, which become holes. Returns the number of bytes released.
    /// While other processes read the object, the space remains for a later call. Does not move
    /// data. Closing a session also does this if the unused space is large compared to the object.
    ///
    /// Costs up to four flushes and a scan of the chunk map.
    ///
    /// # Errors
    /// Same errors as [`commit`](Session::commit).
    pub fn shrink(&mut self) -> Result<u64> {
        self.open.shrink()
    }

    /// Returns true if every page was compared with its checksum. Returns false while that is in
    /// progress, or if it was not requested, see [`Verify`](crate::Verify). Pages that
    /// [`release`](Session::release) or [`shrink`](Session::shrink) cut off do not count.
    ///
    /// # Errors
    /// `Damaged`, with the first bad page.
    pub fn verified(&self) -> Result<bool> {
        self.open.verified()
    }

    /// Returns a map of the object for visualisation: its blocks, including uncommitted ones, and
    /// the pages changed since the last commit. Costs a scan of the allocator's metadata and a
    /// comparison of the changed pages.
    ///
    /// # Errors
    /// When the object's file cannot be read.
    pub fn map(&mut self) -> Result<ObjectMap> {
        self.open.map()
    }

    /// Returns the number of the last commit. At level `Close`, of the last durable one.
    pub fn sequence(&self) -> u64 {
        self.open.sequence()
    }

    /// Returns information about the object, including uncommitted allocations.
    pub fn info(&self) -> Result<ObjectInfo> {
        self.open.info()
    }
}

impl<T> AnySession for Session<T> {
    fn as_open(&self) -> &OpenSession {
        &self.open
    }

    fn open_session(&mut self) -> &mut OpenSession {
        &mut self.open
    }
}

impl<T> Deref for Session<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: as in `root_mut`, shared.
        unsafe { self.root.as_ref() }
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Session<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}
