//! Protected sessions: the object is closed to stores, except in write scopes.
//!
//! A stray store faults where it happens. Cursors and the heap are available only through a scope
//! and cannot outlive it, so safe code on one thread never faults. `docs/protection.md` describes
//! the cost of a scope and the rules for threads.

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use super::Session;
use super::open::AnySession;
use super::raw::{RawRoot, RawSession};
use crate::address::prepare_keys;
use crate::alloc::Heap;
use crate::api::info::ObjectInfo;
use crate::error::Result;
use crate::object::{ActiveProtection, ForeignPointer, ObjectMap, Opened, Protection, Protector};
use crate::persist::{Mut, Persist};

impl Protection {
    /// Allocates memory protection keys now, for objects that are protected later. Returns false if
    /// there are none.
    ///
    /// Keys can be allocated only while the process has a single thread, because the kernel denies
    /// earlier threads even reading what a key protects. If a program starts threads before it
    /// protects its first object, call this at the beginning of `main`.
    pub fn prepare_keys() -> bool {
        prepare_keys().is_ok()
    }
}

impl<T: Persist> Session<T> {
    /// Closes the object to stores, except in write scopes. [`Protected::protection`]
    /// returns the protection in force.
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
        Ok(Protected { session: self, protector })
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
    /// // SAFETY: ten numbers fit the block, nothing else uses it, and the scope is open.
    /// unsafe { block.cast::<[u64; 10]>().write([7; 10]) };
    /// drop(scope); // from here on, storing to the block is a fault
    /// // SAFETY: the tag is not the id of a Rust type.
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
        Ok(Protected { session: self, protector })
    }
}

/// A session whose object is closed to stores, except in scopes. A protected [`Session`]
/// dereferences to the root.
#[must_use = "a session that ends discards uncommitted changes"]
pub struct Protected<S> {
    session: S,
    protector: Option<Arc<Protector>>,
}

/// A [`Session`] whose object is closed to stores, except in scopes: see `scope`.
pub type ProtectedSession<T> = Protected<Session<T>>;

/// A [`RawSession`] whose object is closed to stores, except in scopes: see `scope`.
pub type ProtectedRawSession = Protected<RawSession>;

/// Scope in which a protected object may be changed. See `scope` of a
/// [`ProtectedSession`]. Dereferences to the root.
#[must_use = "the object is closed again when this is dropped"]
pub struct WriteScope<'a, T> {
    session: &'a mut Session<T>,
    _opened: Opened<'a>,
}

/// Scope in which a protected object may be changed. See `scope` of a
/// [`ProtectedRawSession`].
#[must_use = "the object is closed again when this is dropped"]
pub struct RawWriteScope<'a> {
    session: &'a RawSession,
    _opened: Opened<'a>,
}

/// Opens a protected object for other threads. See [`Protected::pass`].
#[derive(Clone)]
pub struct WritePass {
    protector: Option<Arc<Protector>>,
}

/// Permission of a thread to store to a protected object. Returned by [`WritePass::enter`].
#[must_use = "the object is closed again when this is dropped"]
pub struct WritePermit<'a> {
    _opened: Opened<'a>,
    // Repeats what `Opened` implies, where users look for it: permits are not `Send`.
    of_this_thread: PhantomData<*const ()>,
}

fn open(protector: &Option<Arc<Protector>>) -> Result<Opened<'_>> {
    protector.as_deref().map_or_else(|| Ok(Opened::always()), Protector::open)
}

impl<S: AnySession> Protected<S> {
    /// Returns how the object is closed to stores.
    pub fn protection(&self) -> ActiveProtection {
        self.protector.as_ref().map_or(ActiveProtection::Nothing, |protector| protector.active())
    }

    /// Returns a pass for threads that store to the object and were not started inside the
    /// scope. With [`ActiveProtection::Keys`], each thread has its own rights.
    pub fn pass(&self) -> WritePass {
        WritePass { protector: self.protector.clone() }
    }

    /// Like [`Session::commit`]; no scope is needed.
    ///
    /// # Errors
    /// Same errors as [`Session::commit`].
    pub fn commit(&mut self) -> Result<bool> {
        self.session.open_session().commit()
    }

    /// Like [`Session::rollback`]; no scope is needed.
    ///
    /// # Errors
    /// Same errors as [`Session::rollback`].
    pub fn rollback(&mut self) -> Result<()> {
        self.session.open_session().rollback()
    }

    /// Like [`Session::sync`].
    ///
    /// # Errors
    /// Same errors as [`Session::sync`].
    pub fn sync(&mut self) -> Result<()> {
        self.session.open_session().sync()
    }

    /// Like [`Session::checkpoint`].
    ///
    /// # Errors
    /// Same errors as [`Session::checkpoint`].
    pub fn checkpoint(&mut self) -> Result<bool> {
        self.session.open_session().checkpoint()
    }

    /// Like [`Session::reserve`]; no scope is needed.
    ///
    /// # Errors
    /// Same errors as [`Session::reserve`].
    pub fn reserve(&mut self, bytes: u64) -> Result<()> {
        self.session.open_session().reserve(bytes)
    }

    /// Like [`Session::release`]; no scope is needed.
    ///
    /// # Errors
    /// Same errors as [`Session::release`].
    pub fn release(&mut self, bytes_max: u64) -> Result<u64> {
        self.session.open_session().release(bytes_max)
    }

    /// Like [`Session::shrink`]; no scope is needed.
    ///
    /// # Errors
    /// Same errors as [`Session::shrink`].
    pub fn shrink(&mut self) -> Result<u64> {
        self.session.open_session().shrink()
    }

    /// Like [`Session::verified`].
    ///
    /// # Errors
    /// Same errors as [`Session::verified`].
    pub fn verified(&self) -> Result<bool> {
        self.session.as_open().verified()
    }

    /// Like [`Session::map`].
    ///
    /// # Errors
    /// Same errors as [`Session::map`].
    pub fn map(&mut self) -> Result<ObjectMap> {
        self.session.open_session().map()
    }

    /// Returns the object's name when it was opened.
    pub fn name(&self) -> &str {
        self.session.as_open().name()
    }

    /// Like [`RawSession::regions`].
    pub fn regions(&self) -> Vec<(u64, u64)> {
        self.session.as_open().regions()
    }

    /// Returns the number of the last commit. At level `Close`, of the last durable one.
    pub fn sequence(&self) -> u64 {
        self.session.as_open().sequence()
    }

    /// Returns information about the object, including uncommitted allocations.
    ///
    /// # Errors
    /// When the file's length cannot be read.
    pub fn info(&self) -> Result<ObjectInfo> {
        self.session.as_open().info()
    }

    /// Like [`Session::close`].
    ///
    /// # Errors
    /// Same errors as [`Session::close`].
    pub fn close(mut self) -> Result<()> {
        self.session.open_session().end()
    }
}

impl<T: Persist> Protected<Session<T>> {
    /// Opens the object to stores until the scope is dropped. With [`ActiveProtection::Keys`], this
    /// affects this thread and the threads that it starts in the scope, and takes some 20 ns. With
    /// [`ActiveProtection::Pages`], it affects all threads, and takes two system calls.
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
}

impl Protected<RawSession> {
    /// Returns true if there are uncommitted changes. See [`RawSession::has_changes`].
    ///
    /// # Errors
    /// Same errors as [`RawSession::has_changes`].
    pub fn has_changes(&mut self) -> Result<bool> {
        self.session.has_changes()
    }

    /// Opens the object to stores until the scope is dropped. With [`ActiveProtection::Keys`], this
    /// affects this thread and the threads that it starts in the scope, and takes some 20 ns. With
    /// [`ActiveProtection::Pages`], it affects all threads, and takes two system calls. Scopes
    /// nest, and several threads may have one each.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn scope(&self) -> Result<RawWriteScope<'_>> {
        Ok(RawWriteScope { session: &self.session, _opened: open(&self.protector)? })
    }

    /// Opens the object as a scope does, until the matching call of
    /// [`end_write`](Protected::end_write). For languages without scopes. Calls nest.
    /// With [`ActiveProtection::Keys`], the same thread must call both.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn begin_write(&self) -> Result<()> {
        self.protector.as_deref().map_or(Ok(()), Protector::begin)
    }

    /// Ends what [`begin_write`](Protected::begin_write) began. Returns false if there was nothing
    /// to end. Without protection it returns true.
    pub fn end_write(&self) -> bool {
        self.protector.as_deref().is_none_or(Protector::end)
    }

    /// Returns the root, including uncommitted changes of it.
    pub fn root(&self) -> RawRoot {
        self.session.root()
    }

    /// Like [`RawSession::foreign_pointers`].
    pub fn foreign_pointers(&mut self) -> Vec<ForeignPointer> {
        self.session.foreign_pointers()
    }

    /// Like [`RawSession::expect_foreign`].
    pub fn expect_foreign(&mut self, address: usize, bytes: usize) {
        self.session.expect_foreign(address, bytes);
    }

    /// Like [`RawSession::register_code`].
    ///
    /// # Errors
    /// Same errors as [`RawSession::register_code`].
    pub fn register_code(&mut self) -> Result<()> {
        self.session.register_code()
    }

    /// Like [`RawSession::forget_code`].
    ///
    /// # Errors
    /// Same errors as [`RawSession::forget_code`].
    pub fn forget_code(&mut self) -> Result<()> {
        self.session.forget_code()
    }

    /// Like [`Heap::usable_size`]; no scope is needed.
    pub fn usable_size(&self, block: NonNull<u8>) -> usize {
        self.session.heap().usable_size(block)
    }

    /// Like [`RawSession::set_root`]; no scope is needed.
    ///
    /// # Safety
    /// Same conditions as [`RawSession::set_root`].
    ///
    /// # Errors
    /// Same errors as [`RawSession::set_root`].
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
}

impl<T: Persist> WriteScope<'_, T> {
    /// Returns the root for editing while the scope lasts.
    pub fn root_mut(&mut self) -> Mut<'_, T> {
        self.session.root_mut()
    }

    /// The object's allocator.
    pub fn heap(&self) -> &Heap {
        self.session.heap()
    }
}

impl RawWriteScope<'_> {
    /// Returns the object's allocator. Queries such as [`Heap::usable_size`] need no scope.
    pub fn heap(&self) -> &Heap {
        self.session.heap()
    }
}

impl WritePass {
    /// Opens the object for this thread until the permit is dropped. Does nothing after the end of
    /// the session.
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

impl<T> Deref for Protected<Session<T>> {
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

impl<S: std::fmt::Debug> std::fmt::Debug for Protected<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.session.fmt(f)
    }
}

impl std::fmt::Debug for WritePass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WritePass").finish_non_exhaustive()
    }
}
