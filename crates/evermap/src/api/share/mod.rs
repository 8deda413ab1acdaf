//! Objects that the threads of one process share: many read, one writes, all in one mapping.
//!
//! `docs/durability.md` has what a reader sees and when. The lock is in `lock`, what a thread holds in
//! `held`, the session behind it in `core`; here are the types that make Rust's borrows follow it.

mod core;
mod facts;
mod held;
mod lock;
mod options;
mod raw;

/// The atomics and locks of the lock; under loom `tests/share_lock.rs` has others.
mod sync {
    pub(super) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    pub(super) use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

    pub(super) use crate::at_fork::is_child;

    /// Sequentially consistent accesses are ordered by themselves.
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

use super::info::ObjectInfo;
use super::open_session::OpenSession;
use super::snapshot::{check_root, root_as};
use super::store::Store;
use crate::alloc::Heap;
use crate::api::home::Use;
use crate::error::Result;
use crate::persist::{Mut, Persist};

/// An object that the threads of this process read and write. Cheap to clone; all clones, and all that
/// [`Store::share`] gives for one object, are the same.
///
/// [`read`](Shared::read) waits while a writer stores, and for its commit;
/// [`write`](Shared::write) waits for the readers that are inside and for earlier writers. While no
/// writer is there, a read takes an atomic addition to begin and one to end. Other processes may read
/// the object as ever.
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
#[must_use = "an object is shared for as long as a handle lives"]
pub struct Shared<T> {
    core: Arc<SharedCore>,
    root: NonNull<T>,
}

// SAFETY: a handle gives `&T` to readers of several threads, and `Mut<T>` to one writer at a time.
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
    /// While a handle lives, [`read`](Store::read) and [`write`](Store::write) of the object in this
    /// process are `Busy`; to other processes this one is its writer.
    ///
    /// # Errors
    /// As [`write`](Store::write); `Busy` also when it is shared here with other options.
    pub fn share<T: Persist>(&self, name: &str) -> Result<Shared<T>> {
        let write = self.home.options.write.clone();
        self.share_with(name, &ShareOptions::new().write_options(write))
    }

    /// As [`share`](Store::share), with choices of its own.
    ///
    /// # Errors
    /// As [`share`](Store::share).
    pub fn share_with<T: Persist>(&self, name: &str, options: &ShareOptions) -> Result<Shared<T>> {
        self.home.run(Use::Open, |inner| {
            let core = SharedCore::open(inner, name, options, self.application, |open, path| {
                let root = root_as::<T>(inner, name, open.superblock())?;
                // SAFETY: the session maps the object as of its superblock, and no writer is there yet.
                unsafe { check_root(root, open.superblock(), path) }
            })?;
            let root = root_as::<T>(inner, name, core.superblock())?;
            Ok(Shared { core, root })
        })
    }
}

impl<T: Persist> Shared<T> {
    /// Begins to read: waits while a writer stores and, with [`Reads::Acknowledged`], while it commits.
    ///
    /// A thread that reads already reads on at once, also while a writer waits. The longest wait is one
    /// write section, with its commit unless [`Reads::EarlyRead`] was chosen, and before that the reads
    /// that were under way when that writer came.
    ///
    /// # Errors
    /// `WouldDeadlock` when the calling thread writes the object; `DurabilityUnknown` after a flush
    /// failed: drop all handles and share the object again, which finds its last durable commit;
    /// `Forked` in a child that was forked while a thread was storing to the object.
    #[inline]
    pub fn read(&self) -> Result<SharedRead<'_, T>> {
        self.core.begin_read()?;
        Ok(SharedRead { shared: self, of_this_thread: PhantomData })
    }

    /// Begins to write: waits for earlier writers, then for the readers that are inside. Readers that
    /// come meanwhile wait, so that a writer does not starve.
    ///
    /// # Errors
    /// As [`read`](Shared::read); `WouldDeadlock` also when the calling thread reads the object.
    pub fn write(&self) -> Result<SharedWrite<'_, T>> {
        Ok(SharedWrite { turn: self.core.begin_write()?, root: self.root })
    }

    /// Makes everything committed so far durable, beside readers. See
    /// [`Session::sync`](crate::Session::sync).
    ///
    /// # Errors
    /// As [`write`](Shared::write), and those of `Session::sync`.
    pub fn sync(&self) -> Result<()> {
        self.core.sync()
    }

    /// Writes all commits to the object file and empties the log, beside readers of this process. See
    /// [`Session::checkpoint`](crate::Session::checkpoint).
    ///
    /// # Errors
    /// As [`sync`](Shared::sync).
    pub fn checkpoint(&self) -> Result<bool> {
        self.core.checkpoint()
    }

    /// Gives this handle up. The last one ends the session, as [`Session::close`](crate::Session::close)
    /// does; dropping it does the same, but has no way to report errors.
    ///
    /// # Errors
    /// What was committed is durable whatever this returns; after an error the next opening finishes the
    /// work.
    pub fn close(self) -> Result<()> {
        Arc::into_inner(self.core).map_or(Ok(()), SharedCore::close)
    }
}

impl<T> std::fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// A read of a [`Shared`] object by one thread. Dereferences to the root. Writers wait until it is
/// dropped.
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
#[must_use = "writers wait only while the guard lives"]
pub struct SharedRead<'a, T: Persist> {
    shared: &'a Shared<T>,
    /// A thread's reads are noted in that thread.
    of_this_thread: PhantomData<*const ()>,
}

impl<T: Persist> Deref for SharedRead<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the root's type, place and alignment were checked at opening; the mapping lives in
        // the handle that is borrowed, and no writer stores to it while a reader is inside.
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

/// A write section of a [`Shared`] object, by one thread. Dereferences to the root.
///
/// [`commit`](SharedWrite::commit) makes what was stored part of the object; dropping the guard forgets
/// what was not committed, also when a panic drops it, and leaves a line in the log. Readers never see
/// it then.
#[must_use = "readers wait only while the guard lives; what is not committed is forgotten"]
pub struct SharedWrite<'a, T> {
    turn: Turn<'a>,
    root: NonNull<T>,
}

impl<T: Persist> SharedWrite<'_, T> {
    /// The root, for editing. After a commit with [`Reads::EarlyRead`] this waits for the readers that
    /// came meanwhile.
    pub fn root_mut(&mut self) -> Mut<'_, T> {
        let root = self.root;
        // SAFETY: the root's type was checked at opening, the mapping lives in the session, and the
        // turn is borrowed exclusively: no reader and no other writer has a reference into the object.
        unsafe { Mut::from_raw(self.turn.storing().heap(), root) }
    }

    /// The object's allocator, for code that manages its own memory in the object.
    pub fn heap(&mut self) -> &Heap {
        self.turn.storing().heap()
    }

    /// Makes everything done since the last commit part of the object. As
    /// [`Session::commit`](crate::Session::commit) otherwise.
    ///
    /// With [`Reads::EarlyRead`] readers come in when this begins. Should it fail before the commit
    /// point, they have seen changes that are not committed; commit again, or roll back, which waits for
    /// them to leave.
    ///
    /// # Errors
    /// As `Session::commit`. After `DurabilityUnknown` every further read and write returns that too.
    pub fn commit(&mut self) -> Result<bool> {
        self.turn.commit()
    }

    /// Forgets everything done since the last commit.
    ///
    /// # Errors
    /// When the kernel refuses to give the pages back: every further read and write returns
    /// `DurabilityUnknown` then.
    pub fn rollback(&mut self) -> Result<()> {
        self.turn.rollback()
    }

    /// As [`Session::reserve`](crate::Session::reserve).
    ///
    /// # Errors
    /// As there.
    pub fn reserve(&mut self, bytes: u64) -> Result<()> {
        self.turn.with_readers_out(|open| open.reserve(bytes))
    }

    /// As [`Session::shrink`](crate::Session::shrink).
    ///
    /// # Errors
    /// As there.
    pub fn shrink(&mut self) -> Result<u64> {
        self.turn.with_readers_out(OpenSession::shrink)
    }

    /// Number of the last commit; at level `Close`, of the last durable one.
    pub fn sequence(&self) -> u64 {
        self.turn.session().sequence()
    }

    /// What is known about the object, uncommitted allocations included.
    ///
    /// # Errors
    /// When the file cannot be looked at.
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
