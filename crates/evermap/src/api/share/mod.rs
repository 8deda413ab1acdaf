//! Shared objects: many threads of a process read, one writes, all in one mapping.
//!
//! `docs/durability.md` describes what a reader sees and when. The lock is in `lock`, the holdings
//! of a thread in `held`, and the session in `core`. The types here make Rust's borrow checker
//! enforce the lock.

mod core;
mod facts;
mod held;
mod lock;
mod options;
mod raw;

/// Atomics and mutex of the lock. `tests/share_lock.rs` replaces them under loom.
mod sync {
    pub(super) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    pub(super) use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

    pub(super) use crate::at_fork::is_child;

    /// Does nothing: sequentially consistent accesses are ordered by themselves.
    #[inline(always)]
    pub(super) fn order() {}
}

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

pub(super) use self::core::SharedCore;
use self::core::Turn;
pub use options::{Reads, ShareOptions};
pub use raw::RawShared;

use crate::alloc::Heap;
use crate::api::home::Use;
use crate::api::info::ObjectInfo;
use crate::api::session::open::OpenSession;
use crate::api::snapshot::root::{check_root, root_as};
use crate::api::store::Store;
use crate::error::Result;
use crate::persist::{Mut, Persist};

/// An object that threads of this process read and write. Cheap to clone. All clones, and all
/// handles that [`Store::share`] returns for one object, share one session.
///
/// [`read`](Shared::read) waits while a writer stores, and for its commit. [`write`](Shared::write)
/// waits for readers that are inside and for earlier writers. Without a writer, a read costs one
/// atomic addition to begin and one to end. Other processes may read the object as usual.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// let store = evermap::Store::create_new(directory.path().join("store"))?;
/// store.create::<evermap::PVec<u64>, _>("squares", [0, 1, 4])?;
/// let squares = store.share::<evermap::PVec<u64>>("squares")?;
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         let mut writer = squares.write().unwrap();
///         writer.root_mut().push(9).unwrap();
///         writer.commit().unwrap();
///     });
///     scope.spawn(|| {
///         let reader = squares.read().unwrap();
///         assert!(reader.len() == 3 || reader[3] == 9);
///     });
/// });
/// squares.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the object is shared only while a handle exists"]
pub struct Shared<T> {
    core: Arc<SharedCore>,
    root: NonNull<T>,
}

// SAFETY: a handle gives `&T` to readers in several threads, and `Mut<T>` to one writer at a time.
unsafe impl<T: Send + Sync> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared { core: Arc::clone(&self.core), root: self.root }
    }
}

impl Store {
    /// Opens an object for the threads of this process to read and write.
    ///
    /// While a handle exists, [`read`](Store::read) and [`write`](Store::write) of the object in
    /// this process return `Busy`. For other processes, this process is the object's writer.
    ///
    /// # Errors
    /// Same errors as [`write`](Store::write); `Busy` also if it is shared here with other options.
    pub fn share<T: Persist>(&self, name: &str) -> Result<Shared<T>> {
        let write = self.home.options.write.clone();
        self.share_with(name, &ShareOptions::new().write_options(write))
    }

    /// Like [`share`](Store::share), with options for this object.
    ///
    /// # Errors
    /// Same errors as [`share`](Store::share).
    pub fn share_with<T: Persist>(&self, name: &str, options: &ShareOptions) -> Result<Shared<T>> {
        self.home.run(Use::Open, |inner| {
            let core = inner.share_object(name, options, self.application, |open, path| {
                let root = root_as::<T>(inner, name, open.superblock())?;
                // SAFETY: the session maps the object as of its superblock, and no writer is there
                // yet.
                unsafe { check_root(root, open.superblock(), path) }
            })?;
            let root = root_as::<T>(inner, name, core.superblock())?;
            Ok(Shared { core, root })
        })
    }
}

impl<T: Persist> Shared<T> {
    /// Begins a read. Waits while a writer stores and, with [`Reads::Acknowledged`], while it
    /// commits.
    ///
    /// A thread that already reads does not wait, even while a writer waits. The longest wait is
    /// the reads in progress when a writer came, and then that write section, with its commit
    /// unless [`Reads::EarlyRead`] was chosen.
    ///
    /// # Errors
    /// `WouldDeadlock` if the calling thread writes the object. `DurabilityUnknown` after a failed
    /// flush: drop all handles and share the object again, which finds its last durable commit.
    /// `Forked` in a child that was forked while a thread was storing to the object, or that does
    /// not have the object's memory.
    #[inline]
    pub fn read(&self) -> Result<SharedRead<'_, T>> {
        self.core.begin_read()?;
        Ok(SharedRead { shared: self, of_this_thread: PhantomData })
    }

    /// Begins a write. Waits for earlier writers, then for readers that are inside. Later readers
    /// wait, so that a writer does not starve.
    ///
    /// # Errors
    /// Same errors as [`read`](Shared::read); `WouldDeadlock` also if the calling thread reads the
    /// object, and `Forked` in every forked child.
    pub fn write(&self) -> Result<SharedWrite<'_, T>> {
        Ok(SharedWrite { turn: self.core.begin_write()?, root: self.root })
    }

    /// Makes all commits durable. Readers may stay. See [`Session::sync`](crate::Session::sync).
    ///
    /// # Errors
    /// Same errors as [`write`](Shared::write) and `Session::sync`.
    pub fn sync(&self) -> Result<()> {
        self.core.sync()
    }

    /// Writes all commits to the object file and empties the log. Readers of this process may stay.
    /// See [`Session::checkpoint`](crate::Session::checkpoint).
    ///
    /// # Errors
    /// Same errors as [`sync`](Shared::sync).
    pub fn checkpoint(&self) -> Result<bool> {
        self.core.checkpoint()
    }

    /// Releases this handle. The last one ends the session, as
    /// [`Session::close`](crate::Session::close) does. Dropping it does the same, but cannot return
    /// errors.
    ///
    /// # Errors
    /// Same errors as [`Session::close`](crate::Session::close).
    pub fn close(self) -> Result<()> {
        Arc::into_inner(self.core).map_or(Ok(()), SharedCore::close)
    }
}

impl<T> std::fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// Read guard of a [`Shared`] object for one thread. Dereferences to the root. Writers wait until
/// it is dropped.
///
/// References into the object cannot outlive it:
///
/// ```compile_fail
/// # let store = evermap::Store::open("store")?;
/// let numbers = store.share::<evermap::PVec<u64>>("numbers")?;
/// let reader = numbers.read()?;
/// let first = &reader[0];
/// drop(reader);
/// println!("{first}");
/// # Ok::<(), evermap::Error>(())
/// ```
#[must_use = "dropping the guard ends the read"]
pub struct SharedRead<'a, T: Persist> {
    shared: &'a Shared<T>,
    /// A read is recorded in its thread.
    of_this_thread: PhantomData<*const ()>,
}

impl<T: Persist> Deref for SharedRead<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the root's type, place and alignment were checked at opening; the mapping lives
        // in the borrowed handle, and no writer stores to it while a reader is inside.
        unsafe { self.shared.root.as_ref() }
    }
}

impl<T: Persist> Drop for SharedRead<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.shared.core.end_read();
    }
}

impl<T: Persist + std::fmt::Debug> std::fmt::Debug for SharedRead<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

/// Write guard of a [`Shared`] object for one thread. Dereferences to the root.
///
/// [`commit`](SharedWrite::commit) makes the changes part of the object. Dropping the guard, also
/// by a panic, discards uncommitted changes and logs a warning. Readers never see them.
#[must_use = "dropping the guard ends the write and discards uncommitted changes"]
pub struct SharedWrite<'a, T> {
    turn: Turn<'a>,
    root: NonNull<T>,
}

impl<T: Persist> SharedWrite<'_, T> {
    /// Returns the root for editing. After a commit with [`Reads::EarlyRead`], waits for the
    /// readers that have entered since.
    pub fn root_mut(&mut self) -> Mut<'_, T> {
        let root = self.root;
        // SAFETY: the root's type was checked at opening, the mapping lives in the session, and the
        // turn is borrowed exclusively: no reader and no other writer has a reference into the
        // object.
        unsafe { Mut::from_raw(self.turn.storing().heap(), root) }
    }

    /// Returns the object's allocator, for code that manages its own memory in the object.
    pub fn heap(&mut self) -> &Heap {
        self.turn.storing().heap()
    }

    /// Commits all changes since the last commit, like [`Session::commit`](crate::Session::commit).
    ///
    /// With [`Reads::EarlyRead`], readers enter when this begins. If it fails before the commit
    /// point, they have seen uncommitted changes. Commit again, or roll back, which waits for them
    /// to leave.
    ///
    /// # Errors
    /// Same errors as `Session::commit`. After `DurabilityUnknown`, every further read and write
    /// returns the same error.
    pub fn commit(&mut self) -> Result<bool> {
        self.turn.commit()
    }

    /// Discards all changes since the last commit.
    ///
    /// # Errors
    /// When the kernel refuses to release the pages. After that, every further read and write
    /// returns `DurabilityUnknown`.
    pub fn rollback(&mut self) -> Result<()> {
        self.turn.rollback()
    }

    /// Like [`Session::reserve`](crate::Session::reserve).
    ///
    /// # Errors
    /// Same errors as [`Session::reserve`](crate::Session::reserve).
    pub fn reserve(&mut self, bytes: u64) -> Result<()> {
        self.turn.with_readers_out(|open| open.reserve(bytes))
    }

    /// Like [`Session::shrink`](crate::Session::shrink).
    ///
    /// # Errors
    /// Same errors as [`Session::shrink`](crate::Session::shrink).
    pub fn shrink(&mut self) -> Result<u64> {
        self.turn.with_readers_out(OpenSession::shrink)
    }

    /// Returns the number of the last commit. At level `Close`, of the last durable one.
    pub fn sequence(&self) -> u64 {
        self.turn.session().sequence()
    }

    /// Returns information about the object, including uncommitted allocations.
    ///
    /// # Errors
    /// When the file's length cannot be read.
    pub fn info(&self) -> Result<ObjectInfo> {
        self.turn.session().info()
    }
}

impl<T> Deref for SharedWrite<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: as in `root_mut`, shared.
        unsafe { self.root.as_ref() }
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for SharedWrite<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}
