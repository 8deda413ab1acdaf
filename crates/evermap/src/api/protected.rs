//! Sessions whose object is closed to stores, except in write scopes.
//!
//! A store that goes astray faults where it happens. Cursors and the heap are reached through a
//! scope only, so safe code that keeps to its thread never meets a fault: what a scope gives cannot
//! outlive it. `docs/protection.md` has what a scope costs, and what threads have to know.

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use super::info::ObjectInfo;
use super::raw::{RawRoot, RawSession};
use super::session::Session;
use crate::address::prepare_keys;
use crate::alloc::Heap;
use crate::error::Result;
use crate::object::{ActiveProtection, ForeignPointer, ObjectMap, Opened, Protection, Protector};
use crate::persist::{Mut, Persist};

impl Protection {
    /// Takes memory protection keys from the kernel now, for objects that are protected later;
    /// false where there are none.
    ///
    /// Keys can be taken only while the process has a single thread: the kernel lets no thread that
    /// was there before even read what a key protects. A program that starts threads before it
    /// protects its first object calls this at the beginning of `main`.
    pub fn prepare_keys() -> bool {
        prepare_keys().is_ok()
    }
}

impl<T: Persist> Session<T> {
    /// Closes the object to stores, except in write scopes. What is in force then is told by
    /// [`ProtectedSession::protection`].
    ///
    /// ```
    /// use evermap::{ActiveProtection, Protection};
    /// # let directory = tempfile::tempdir()?;
    /// let store = evermap::Store::create_new(directory.path().join("store"))?;
    /// store.create::<u64, _>("counter", 0)?;
    /// let mut counter = store.write::<u64>("counter")?.protect(Protection::Keys)?;
    /// assert_ne!(counter.protection(), ActiveProtection::Nothing);
    /// *counter.scope()?.root_mut() += 1; // anywhere else, a store to the object is a fault
    /// counter.commit()?;
    /// assert_eq!(*counter, 1);
    /// counter.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the kernel refuses; the session is closed then.
    pub fn protect(mut self, protection: Protection) -> Result<ProtectedSession<T>> {
        let protector = self.open_session().protect(protection)?;
        Ok(ProtectedSession { session: self, protector })
    }
}

impl RawSession {
    /// Closes the object to stores, except in write scopes.
    ///
    /// ```
    /// use evermap::Protection;
    /// # let directory = tempfile::tempdir()?;
    /// let store = evermap::Store::create_new(directory.path().join("store"))?;
    /// store.create_raw("numbers")?;
    /// let mut session = store.write_raw("numbers")?.protect(Protection::Keys)?;
    /// let scope = session.scope()?;
    /// let block = scope.heap().allocate(80, 8)?;
    /// // SAFETY: ten numbers fit the block, which is nobody else's; the scope is open.
    /// unsafe { block.cast::<[u64; 10]>().write([7; 10]) };
    /// drop(scope); // from here on, storing to the block is a fault
    /// // SAFETY: the tag is no Rust type's.
    /// unsafe { session.set_root(Some(block), 80, [0; 16], "ten numbers") }?;
    /// session.commit()?;
    /// session.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the kernel refuses; the session is closed then.
    pub fn protect(mut self, protection: Protection) -> Result<ProtectedRawSession> {
        let protector = self.open_session().protect(protection)?;
        Ok(ProtectedRawSession { session: self, protector })
    }
}

/// A [`Session`] whose object is closed to stores, except in [`scope`](ProtectedSession::scope)s.
/// Dereferences to the root.
#[must_use = "a session that ends forgets what was not committed"]
pub struct ProtectedSession<T> {
    session: Session<T>,
    protector: Option<Arc<Protector>>,
}

/// A [`RawSession`] whose object is closed to stores, except in
/// [`scope`](ProtectedRawSession::scope)s.
#[must_use = "a session that ends forgets what was not committed"]
pub struct ProtectedRawSession {
    session: RawSession,
    protector: Option<Arc<Protector>>,
}

/// The time in which a protected object may be changed; see [`ProtectedSession::scope`].
/// Dereferences to the root.
#[must_use = "the object is closed again when this is dropped"]
pub struct WriteScope<'a, T> {
    session: &'a mut Session<T>,
    _opened: Opened<'a>,
}

/// The time in which a protected object may be changed; see [`ProtectedRawSession::scope`].
#[must_use = "the object is closed again when this is dropped"]
pub struct RawWriteScope<'a> {
    session: &'a RawSession,
    _opened: Opened<'a>,
}

/// Opens a protected object for other threads: see [`ProtectedSession::pass`].
#[derive(Clone)]
pub struct WritePass {
    protector: Option<Arc<Protector>>,
}

/// A thread's permission to store to a protected object; from [`WritePass::enter`].
#[must_use = "the object is closed again when this is dropped"]
pub struct WritePermit<'a> {
    _opened: Opened<'a>,
    // What `Opened` says already, said again where users look.
    of_this_thread: PhantomData<*const ()>,
}

fn open(protector: &Option<Arc<Protector>>) -> Result<Opened<'_>> {
    protector.as_deref().map_or_else(|| Ok(Opened::always()), Protector::open)
}

/// What both kinds of protected session hand on to the session inside.
macro_rules! hand_on {
    () => {
        /// How the object is kept closed to stores.
        pub fn protection(&self) -> ActiveProtection {
            self.protector
                .as_ref()
                .map_or(ActiveProtection::Nothing, |protector| protector.active())
        }

        /// For threads that are to store to the object and were not started inside of the scope:
        /// with [`ActiveProtection::Keys`] each thread has rights of its own.
        pub fn pass(&self) -> WritePass {
            WritePass { protector: self.protector.clone() }
        }

        /// As [`Session::commit`]; no scope is needed.
        ///
        /// # Errors
        /// As there.
        pub fn commit(&mut self) -> Result<bool> {
            self.session.commit()
        }

        /// As [`Session::rollback`]; no scope is needed.
        ///
        /// # Errors
        /// As there.
        pub fn rollback(&mut self) -> Result<()> {
            self.session.rollback()
        }

        /// As [`Session::sync`].
        ///
        /// # Errors
        /// As there.
        pub fn sync(&mut self) -> Result<()> {
            self.session.sync()
        }

        /// As [`Session::checkpoint`].
        ///
        /// # Errors
        /// As there.
        pub fn checkpoint(&mut self) -> Result<bool> {
            self.session.checkpoint()
        }

        /// As [`Session::reserve`]; no scope is needed.
        ///
        /// # Errors
        /// As there.
        pub fn reserve(&mut self, bytes: u64) -> Result<()> {
            self.session.reserve(bytes)
        }

        /// As [`Session::release`]; no scope is needed.
        ///
        /// # Errors
        /// As there.
        pub fn release(&mut self, bytes_max: u64) -> Result<u64> {
            self.session.release(bytes_max)
        }

        /// As [`Session::shrink`]; no scope is needed.
        ///
        /// # Errors
        /// As there.
        pub fn shrink(&mut self) -> Result<u64> {
            self.session.shrink()
        }

        /// As [`Session::verified`].
        ///
        /// # Errors
        /// As there.
        pub fn verified(&self) -> Result<bool> {
            self.session.verified()
        }

        /// As [`Session::map`].
        ///
        /// # Errors
        /// As there.
        pub fn map(&mut self) -> Result<ObjectMap> {
            self.session.map()
        }

        /// Number of the last commit; at level `Close`, of the last durable one.
        pub fn sequence(&self) -> u64 {
            self.session.sequence()
        }

        /// What is known about the object, uncommitted allocations included.
        ///
        /// # Errors
        /// When its file cannot be looked at.
        pub fn info(&self) -> Result<ObjectInfo> {
            self.session.info()
        }

        /// As [`Session::close`].
        ///
        /// # Errors
        /// As there.
        pub fn close(self) -> Result<()> {
            self.session.close()
        }
    };
}

impl<T: Persist> ProtectedSession<T> {
    /// Opens the object to stores until the scope is dropped. With [`ActiveProtection::Keys`] for this
    /// thread and those that it starts meanwhile, in some 20 ns; with [`ActiveProtection::Pages`] for all
    /// threads, in two system calls.
    ///
    /// ```compile_fail
    /// # let store = evermap::Store::open("store")?;
    /// let mut counter = store.write::<u64>("counter")?.protect(evermap::Protection::Keys)?;
    /// let number = counter.scope()?.root_mut();
    /// number.set(7); // the scope has ended
    /// # Ok::<(), evermap::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn scope(&mut self) -> Result<WriteScope<'_, T>> {
        Ok(WriteScope { session: &mut self.session, _opened: open(&self.protector)? })
    }

    hand_on!();
}

impl ProtectedRawSession {
    /// Are there changes that no commit has? See [`RawSession::has_changes`].
    ///
    /// # Errors
    /// As there.
    pub fn has_changes(&mut self) -> Result<bool> {
        self.session.has_changes()
    }

    /// Opens the object to stores until the scope is dropped. With [`ActiveProtection::Keys`] for this
    /// thread and those that it starts meanwhile, in some 20 ns; with [`ActiveProtection::Pages`] for all
    /// threads, in two system calls. Scopes nest, and several threads may have one each.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn scope(&self) -> Result<RawWriteScope<'_>> {
        Ok(RawWriteScope { session: &self.session, _opened: open(&self.protector)? })
    }

    /// Opens the object as a scope does, until [`end_write`](ProtectedRawSession::end_write) is
    /// called as often: for languages without scopes. With [`ActiveProtection::Keys`] a thread ends what it
    /// began itself.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn begin_write(&self) -> Result<()> {
        self.protector.as_deref().map_or(Ok(()), Protector::begin)
    }

    /// Ends what [`begin_write`](ProtectedRawSession::begin_write) began; false when nothing was.
    pub fn end_write(&self) -> bool {
        self.protector.as_deref().is_none_or(Protector::end)
    }

    /// The object's name when it was opened.
    pub fn name(&self) -> &str {
        self.session.name()
    }

    /// The root, uncommitted changes of it included.
    pub fn root(&self) -> RawRoot {
        self.session.root()
    }

    /// As [`RawSession::foreign_pointers`].
    pub fn foreign_pointers(&mut self) -> Vec<ForeignPointer> {
        self.session.foreign_pointers()
    }

    /// As [`RawSession::expect_foreign`].
    pub fn expect_foreign(&mut self, address: usize, bytes: usize) {
        self.session.expect_foreign(address, bytes);
    }

    /// As [`RawSession::register_code`].
    ///
    /// # Errors
    /// As there.
    pub fn register_code(&mut self) -> Result<()> {
        self.session.register_code()
    }

    /// As [`RawSession::forget_code`].
    ///
    /// # Errors
    /// As there.
    pub fn forget_code(&mut self) -> Result<()> {
        self.session.forget_code()
    }

    /// As [`RawSession::regions`].
    pub fn regions(&self) -> Vec<(u64, u64)> {
        self.session.regions()
    }

    /// As [`Heap::usable_size`]; no scope is needed.
    pub fn usable_size(&self, block: NonNull<u8>) -> usize {
        self.session.heap().usable_size(block)
    }

    /// As [`RawSession::set_root`]; no scope is needed.
    ///
    /// # Safety
    /// As there.
    ///
    /// # Errors
    /// As there.
    pub unsafe fn set_root(
        &mut self,
        root: Option<NonNull<u8>>,
        bytes: u64,
        tag: [u8; 16],
        description: &str,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.session.set_root(root, bytes, tag, description) }
    }

    hand_on!();
}

impl<T: Persist> WriteScope<'_, T> {
    /// The root, for editing, for as long as the scope lasts.
    pub fn root_mut(&mut self) -> Mut<'_, T> {
        self.session.root_mut()
    }

    /// The object's allocator.
    pub fn heap(&self) -> &Heap {
        self.session.heap()
    }
}

impl RawWriteScope<'_> {
    /// The object's allocator. (What only asks, as [`Heap::usable_size`] does, needs no scope.)
    pub fn heap(&self) -> &Heap {
        self.session.heap()
    }
}

impl WritePass {
    /// Opens the object for this thread until the permit is dropped. After the end of the session
    /// there is nothing to open, and that is no error.
    ///
    /// ```
    /// use evermap::{PVec, Protection};
    /// # let directory = tempfile::tempdir()?;
    /// # let store = evermap::Store::create_new(directory.path().join("store"))?;
    /// store.create::<PVec<u64>, _>("numbers", [0; 1000])?;
    /// let mut numbers = store.write::<PVec<u64>>("numbers")?.protect(Protection::Keys)?;
    /// let pass = numbers.pass();
    /// let mut scope = numbers.scope()?;
    /// let mut root = scope.root_mut();
    /// std::thread::scope(|threads| {
    ///     for (part, numbers) in root.as_mut_slice().chunks_mut(100).enumerate() {
    ///         let pass = &pass;
    ///         threads.spawn(move || {
    ///             // Needed in a thread pool, whose threads were there before the scope.
    ///             let _permit = pass.enter().expect("the kernel refuses");
    ///             numbers.fill(part as u64);
    ///         });
    ///     }
    /// });
    /// # drop(scope);
    /// # assert_eq!(numbers[999], 9);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn enter(&self) -> Result<WritePermit<'_>> {
        Ok(WritePermit { _opened: open(&self.protector)?, of_this_thread: PhantomData })
    }
}

impl<T> Deref for ProtectedSession<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.session
    }
}

impl<T> Deref for WriteScope<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.session
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for ProtectedSession<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.session.fmt(f)
    }
}

impl std::fmt::Debug for ProtectedRawSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.session.fmt(f)
    }
}

impl std::fmt::Debug for WritePass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WritePass").finish_non_exhaustive()
    }
}
