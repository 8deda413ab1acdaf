//! Writing: one writer's time with an object whose root is a Rust type.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use super::application::ApplicationKey;
use super::info::ObjectInfo;
use super::inner::{Inner, OBJECTS};
use super::open_session::OpenSession;
use super::snapshot::{check_root, root_as};
use crate::alloc::Heap;
use crate::commit::WriteOptions;
use crate::error::Result;
use crate::object::ObjectMap;
use crate::persist::{Mut, Persist};

/// One writer's time with an object, from opening to closing. Dereferences to the root.
///
/// Stores go to this process's own copies of the pages; nothing reaches the file before
/// [`commit`](Session::commit), which makes all of it durable at once. What was not committed when
/// the session ends, by drop, by a kill or by a power cut, never happened.
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
#[must_use = "a session that ends forgets what was not committed"]
pub struct Session<T> {
    open: OpenSession,
    root: NonNull<T>,
}

// SAFETY: a session owns its mapping; the root is reached through it only.
unsafe impl<T: Send> Send for Session<T> {}
// SAFETY: a shared session gives `&T` and the heap, which is thread-safe.
unsafe impl<T: Sync> Sync for Session<T> {}

impl<T: Persist> Session<T> {
    pub(super) fn open(
        inner: &Arc<Inner>,
        name: &str,
        options: &WriteOptions,
        application: Option<ApplicationKey>,
    ) -> Result<Session<T>> {
        let (open, root) = OpenSession::open(inner, name, options, application, |superblock| {
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

    /// An open object whose root is a `T`.
    pub(super) fn of(open: OpenSession, root: NonNull<T>) -> Session<T> {
        Session { open, root }
    }

    /// The same, for looking at.
    pub(super) fn session(&self) -> &OpenSession {
        &self.open
    }

    /// What both kinds of session share.
    pub(super) fn open_session(&mut self) -> &mut OpenSession {
        &mut self.open
    }

    /// The root, for editing.
    pub fn root_mut(&mut self) -> Mut<'_, T> {
        // SAFETY: the root's type was checked at opening, the mapping lives in the session, and
        // its exclusive borrow covers the whole object.
        unsafe { Mut::from_raw(self.open.heap(), self.root) }
    }

    /// The object's allocator, for code that manages its own memory in the object.
    pub fn heap(&self) -> &Heap {
        self.open.heap()
    }

    /// Makes everything done since the last commit part of the object, all of it or nothing, and
    /// durable at the level that the session was opened with (by default: when this returns).
    /// Returns false when nothing had changed.
    ///
    /// Costs a page-table scan, a comparison of the changed pages and one flush; a second flush
    /// if the object grew, and some more at the first commit of a session. Now and then a commit is
    /// followed by a checkpoint, see [`WriteOptions`].
    ///
    /// # Errors
    /// `DiskFull`, `LogFull` and other errors before the commit point leave everything as it was:
    /// make room and commit again, or roll back. After `DurabilityUnknown` the session is of no more
    /// use; opening the object again finds the last durable commit. `Damaged` when a verification in
    /// the background found damage: nothing was committed.
    pub fn commit(&mut self) -> Result<bool> {
        self.open.commit()
    }

    /// Forgets everything done since the last commit.
    ///
    /// # Errors
    /// When the kernel refuses to give the pages back; the session is of no more use then.
    pub fn rollback(&mut self) -> Result<()> {
        self.open.rollback()
    }

    /// Ends the session. Changes that were not committed are forgotten, with a `tracing` event at warn
    /// level if there are any: commit them or [roll back](Session::rollback) first. Dropping the session
    /// does the same, but cannot return errors.
    ///
    /// # Errors
    /// What was committed is durable whatever this returns; after an error the next opening
    /// finishes the work.
    pub fn close(mut self) -> Result<()> {
        self.open.end()
    }

    /// Makes everything committed so far durable, at any level. At level `Commit` it is already.
    ///
    /// # Errors
    /// `DiskFull` and the like: nothing was lost, try again. `DurabilityUnknown` as for
    /// [`commit`](Session::commit).
    pub fn sync(&mut self) -> Result<()> {
        self.open.sync()
    }

    /// Writes all commits to the object file and empties the log, as a long session does by itself
    /// now and then. False while readers of older commits are in the way.
    ///
    /// # Errors
    /// As [`sync`](Session::sync).
    pub fn checkpoint(&mut self) -> Result<bool> {
        self.open.checkpoint()
    }

    /// Makes room for a block of `bytes`, or many that are smaller: addresses and disk space, so
    /// that allocating them meets no full disk. Commits, and closing leaves the room with the object.
    ///
    /// # Errors
    /// `DiskFull`, `OutOfAddresses`, and those of [`commit`](Session::commit).
    pub fn reserve(&mut self, bytes: u64) -> Result<()> {
        self.open.reserve(bytes)
    }

    /// Commits, and gives up to `bytes_max` of the file's unused end back to the file system. Gives
    /// the bytes: fewer when less is unused, or readers of older commits use it. What is free in the
    /// middle is for [`shrink`](Session::shrink).
    ///
    /// # Errors
    /// As [`commit`](Session::commit).
    pub fn release(&mut self, bytes_max: u64) -> Result<u64> {
        self.open.release(bytes_max)
    }

    /// Commits, and gives back all the disk space that the object does not need: its unused end,
    /// and holes where chunks of 64 KiB are free. Gives the bytes; space that readers of older
    /// commits use is left to a later call. Nothing moves. (Closing a session does the same for
    /// what is large beside the object.)
    ///
    /// Costs up to four flushes and a look at the chunk map.
    ///
    /// # Errors
    /// As [`commit`](Session::commit).
    pub fn shrink(&mut self) -> Result<u64> {
        self.open.shrink()
    }

    /// Was every page compared with its checksum? True when that is done, false while it is going
    /// on or when it was not asked for, see [`Verify`](crate::Verify).
    ///
    /// # Errors
    /// `Damaged`, with the first bad page.
    pub fn verified(&self) -> Result<bool> {
        self.open.verified()
    }

    /// What lies where in the object, what is not committed yet included, with the pages that were
    /// changed since the last commit: for pictures. Costs a look at the allocator's metadata, and a
    /// comparison of the changed pages.
    ///
    /// # Errors
    /// When the object's file cannot be looked at.
    pub fn map(&mut self) -> Result<ObjectMap> {
        self.open.map()
    }

    /// Number of the last commit; at level `Close`, of the last durable one.
    pub fn sequence(&self) -> u64 {
        self.open.sequence()
    }

    /// What is known about the object, uncommitted allocations included.
    pub fn info(&self) -> Result<ObjectInfo> {
        self.open.info()
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
