//! An open object: a writer's session, a reader's snapshot or a shared object, and its root as C
//! sees it.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use evermap_core::{
    ActiveProtection, Error, Heap, ObjectInfo, ProtectedRawSession, RawRoot, RawSession, RawShared,
    RawSnapshot, Store,
};

use crate::abi::failure::{Failure, Result};
use crate::abi::status;
use crate::abi::types::TAG_BYTES;
use crate::runtime::{foreign_reports, fork};

/// Mode in which the object is open.
#[allow(clippy::large_enum_variant, reason = "an object is in a box")]
enum Access {
    Writing(RawSession),
    /// A session whose memory is closed to stores except in write scopes.
    Protected(ProtectedRawSession),
    Reading(RawSnapshot),
    /// Shared by threads of this process, which lock it for reading or writing.
    Shared(RawShared),
    /// A refresh failed half-way. Its caller then closes the handle.
    Nothing,
}

/// Runs the same code on a writer's session of either kind.
macro_rules! on_session {
    ($object:expr, $session:ident => $call:expr) => {
        match &mut $object.access {
            Access::Writing($session) => $call,
            Access::Protected($session) => $call,
            Access::Shared($session) => $call,
            _ => Err(Failure::read_only(&$object.name)),
        }
    };
}

/// The root as of the next commit.
#[derive(Clone)]
pub struct Root {
    pub address: usize,
    pub bytes: u64,
    pub tag: [u8; TAG_BYTES],
    pub description: String,
    /// The session has not received the root yet. It takes a root only under exclusive use, but
    /// setting one must be possible while other threads allocate.
    pending: bool,
}

impl From<RawRoot> for Root {
    fn from(root: RawRoot) -> Root {
        let RawRoot { address, bytes, tag, description } = root;
        Root { address: address as usize, bytes, tag, description, pending: false }
    }
}

/// Number of attempts of a forked child to lock a root.
const ROOT_TRIES: usize = 1000;

/// Returns the address of region 0.
fn first_address(regions: &[(u64, u64)]) -> u64 {
    regions.first().map_or(0, |(base, _)| *base)
}

pub struct Object {
    /// The store, with its application, for opening the object again.
    store: Store,
    name: String,
    base: u64,
    access: Access,
    root: Mutex<Root>,
    /// Ranges in which foreign pointers are expected, as address and bytes. The session takes them
    /// only under exclusive use, so it receives them with the next commit.
    expected: Mutex<Vec<(usize, usize)>>,
    /// Number of foreign pointers reported.
    told: AtomicUsize,
}

impl Object {
    pub fn writing(store: Store, session: RawSession) -> Object {
        let (name, root) = (session.name().to_string(), Mutex::new(session.root().into()));
        let base = first_address(&session.regions());
        Object::new(store, name, base, Access::Writing(session), root)
    }

    pub fn protected(store: Store, session: ProtectedRawSession) -> Object {
        let (name, root) = (session.name().to_string(), Mutex::new(session.root().into()));
        let base = first_address(&session.regions());
        Object::new(store, name, base, Access::Protected(session), root)
    }

    pub fn reading(store: Store, snapshot: RawSnapshot) -> Object {
        let (name, root) = (snapshot.name().to_string(), Mutex::new(snapshot.root().into()));
        let base = first_address(&snapshot.regions());
        Object::new(store, name, base, Access::Reading(snapshot), root)
    }

    fn new(store: Store, name: String, base: u64, access: Access, root: Mutex<Root>) -> Object {
        Object {
            store,
            name,
            base,
            access,
            root,
            expected: Mutex::default(),
            told: AtomicUsize::new(0),
        }
    }

    pub fn sharing(store: Store, shared: RawShared) -> Object {
        let (name, root) = (shared.name().to_string(), Mutex::new(shared.root().into()));
        let base = first_address(&shared.regions());
        Object::new(store, name, base, Access::Shared(shared), root)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn is_writing(&self) -> bool {
        matches!(self.access, Access::Writing(_) | Access::Protected(_) | Access::Shared(_))
    }

    /// Returns the shared object, if the object is open for sharing.
    #[inline]
    pub fn as_shared(&self) -> Option<&RawShared> {
        match &self.access {
            Access::Shared(shared) => Some(shared),
            _ => None,
        }
    }

    /// Returns the shared object, for a function that requires one.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`.
    #[inline]
    pub fn shared(&self) -> Result<&RawShared> {
        self.as_shared().ok_or_else(|| Failure::not_shared(&self.name))
    }

    fn lock_root(&self) -> MutexGuard<'_, Root> {
        self.root.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the root. Works in a forked child as well, where a thread that no longer exists may
    /// hold the lock.
    fn read_root<T>(&self, read: impl FnOnce(&Root) -> T) -> Result<T> {
        if !fork::is_child() {
            return Ok(read(&self.lock_root()));
        }
        for _ in 0..ROOT_TRIES {
            match self.root.try_lock() {
                Ok(root) => return Ok(read(&root)),
                Err(TryLockError::Poisoned(root)) => return Ok(read(&root.into_inner())),
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
        let message = "another thread was setting the object's root when this process was forked";
        Err(Failure::new(status::BUSY, message))
    }

    /// Returns the heap of an object that was opened without protection, as `fastio.h` and
    /// `nvheap.h` do.
    ///
    /// # Errors
    /// `READ_ONLY`.
    pub fn heap(&self) -> Result<&Heap> {
        self.unprotected_heap().ok_or_else(|| Failure::read_only(&self.name))
    }

    /// Returns the heap of an object that was opened for stores without protection.
    #[inline(always)]
    pub fn unprotected_heap(&self) -> Option<&Heap> {
        match &self.access {
            Access::Writing(session) => session.heap_if_open(),
            _ => None,
        }
    }

    /// Runs a call of the heap, which stores into the object: a protected object is opened for
    /// stores during the call.
    ///
    /// # Errors
    /// `READ_ONLY`, and errors of the call.
    #[inline]
    pub fn on_heap<T>(&self, call: impl FnOnce(&Heap) -> Result<T>) -> Result<T> {
        match &self.access {
            Access::Writing(session) => call(session.heap()),
            _ => self.on_protected_heap(call),
        }
    }

    #[cold]
    fn on_protected_heap<T>(&self, call: impl FnOnce(&Heap) -> Result<T>) -> Result<T> {
        match &self.access {
            Access::Protected(session) => {
                let scope = session.scope()?;
                call(scope.heap())
            }
            Access::Shared(shared) => shared.on_heap(call)?,
            _ => Err(Failure::read_only(&self.name)),
        }
    }

    /// Returns the bytes of an allocated block, 0 for any other pointer.
    ///
    /// # Errors
    /// `READ_ONLY`.
    pub fn usable_size(&self, block: NonNull<u8>) -> Result<usize> {
        match &self.access {
            Access::Writing(session) => Ok(session.heap().usable_size(block)),
            Access::Protected(session) => Ok(session.usable_size(block)),
            Access::Shared(shared) => Ok(shared.on_heap(|heap| heap.usable_size(block))?),
            _ => Err(Failure::read_only(&self.name)),
        }
    }

    /// Opens a protected object to stores.
    ///
    /// # Errors
    /// `READ_ONLY`, and errors of the kernel.
    pub fn begin_write(&self) -> Result<()> {
        match &self.access {
            Access::Writing(_) => Ok(()),
            Access::Protected(session) => Ok(session.begin_write()?),
            // The thread's stores must exclude readers, which a commit may have let in.
            Access::Shared(shared) => Ok(shared.exclude_readers()?),
            _ => Err(Failure::read_only(&self.name)),
        }
    }

    /// Ends the scope that [`begin_write`](Object::begin_write) began.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a protected object without a scope, `READ_ONLY`.
    pub fn end_write(&self) -> Result<()> {
        match &self.access {
            Access::Writing(_) | Access::Shared(_) => Ok(()),
            Access::Protected(session) if session.end_write() => Ok(()),
            Access::Protected(_) => Err(Failure::argument(
                "no em_write_begin() of this object is open here; end each one once, with \
                 EM_PROTECTION_KEYS in the thread that began it",
            )),
            _ => Err(Failure::read_only(&self.name)),
        }
    }

    pub fn active(&self) -> ActiveProtection {
        match &self.access {
            Access::Protected(session) => session.protection(),
            _ => ActiveProtection::Nothing,
        }
    }

    /// Returns the address ranges as base and bytes.
    pub fn regions(&self) -> Vec<(u64, u64)> {
        match &self.access {
            Access::Writing(session) => session.regions(),
            Access::Protected(session) => session.regions(),
            Access::Reading(snapshot) => snapshot.regions(),
            Access::Shared(shared) => shared.regions(),
            Access::Nothing => Vec::new(),
        }
    }

    /// Returns the first address, which is the same in every process and does not change.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Overlays bytes at an address of a snapshot, in this process only.
    ///
    /// # Safety
    /// The bytes there are not read during the call.
    pub unsafe fn patch(&self, address: usize, bytes: &[u8]) -> Result<()> {
        let Access::Reading(snapshot) = &self.access else {
            let message = format!("object `{}` is not open for reading; store to it", self.name);
            return Err(Failure::argument(message));
        };
        if !snapshot.contains(address, bytes.len()) {
            let message =
                format!("{} bytes at {address:#x} are not in the object's data", bytes.len());
            return Err(Failure::argument(message));
        }
        // SAFETY: the bytes are data of the object, and the caller guarantees that they are not
        // read.
        Ok(unsafe { snapshot.patch(address, bytes) }?)
    }

    /// Returns the root.
    ///
    /// # Errors
    /// `BUSY` in a forked child, see [`read_root`](Object::read_root); the same holds for the next
    /// two functions.
    pub fn root(&self) -> Result<Root> {
        match &self.access {
            // All handles of a shared object have the same root.
            Access::Shared(shared) => Ok(shared.root().into()),
            _ => self.read_root(Root::clone),
        }
    }

    pub fn root_address(&self) -> Result<usize> {
        match &self.access {
            Access::Shared(shared) => Ok(shared.root_address()),
            _ => self.read_root(|root| root.address),
        }
    }

    pub fn root_bytes(&self) -> Result<u64> {
        Ok(self.root()?.bytes)
    }

    /// Changes the root with the next commit.
    ///
    /// # Safety
    /// Same requirements as [`RawSession::set_root`](evermap::RawSession::set_root), until that
    /// commit.
    ///
    /// # Errors
    /// `BAD_ROOT`, `READ_ONLY`.
    pub unsafe fn set_root(
        &self,
        address: usize,
        bytes: u64,
        tag: [u8; TAG_BYTES],
        description: &str,
    ) -> Result<()> {
        let block = NonNull::new(address as *mut u8);
        let size = match block {
            Some(block) => self.usable_size(block)? as u64,
            None if self.is_writing() => u64::MAX,
            None => return Err(Failure::read_only(&self.name)),
        };
        if size < bytes.max(1) {
            let (object, address) = (self.name.clone(), address as u64);
            return Err(Error::BadRoot { object, address, bytes }.into());
        }
        let bytes = if block.is_some() { bytes } else { 0 };
        if let Access::Shared(shared) = &self.access {
            // SAFETY: the caller guarantees the requirements of `RawSession::set_root`.
            return Ok(unsafe { shared.set_root(block, bytes, tag, description) }?);
        }
        let description = description.to_string();
        *self.lock_root() = Root { address, bytes, tag, description, pending: true };
        Ok(())
    }

    /// Marks these bytes of the object: foreign pointers in them are not reported.
    ///
    /// # Errors
    /// `READ_ONLY`, `INVALID_ARGUMENT`.
    pub fn expect_foreign(&self, address: usize, bytes: usize) -> Result<()> {
        if !self.is_writing() {
            return Err(Failure::read_only(&self.name));
        }
        let last = (address as u64).checked_add(bytes as u64);
        let has = |(base, length): &(u64, u64)| {
            address as u64 >= *base && last.is_some_and(|last| last <= base + length)
        };
        if !self.regions().iter().any(has) {
            let message = format!("{bytes} bytes at {address:#x} are not in the object's data");
            return Err(Failure::argument(message));
        }
        if let Access::Shared(shared) = &self.access {
            return Ok(shared.expect_foreign(address, bytes)?);
        }
        self.lock_expected().push((address, bytes));
        Ok(())
    }

    fn lock_expected(&self) -> MutexGuard<'_, Vec<(usize, usize)>> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts foreign pointers that are to be reported. Returns the number of earlier ones.
    pub fn count_foreign(&self, number: usize) -> usize {
        self.told.fetch_add(number, Ordering::Relaxed)
    }

    /// Allows pointers into this program and records its build.
    ///
    /// # Errors
    /// `UNSUPPORTED`, `READ_ONLY`.
    pub fn register_code(&mut self) -> Result<()> {
        on_session!(self, session => Ok(session.register_code()?))
    }

    /// Removes the record of builds.
    ///
    /// # Errors
    /// `READ_ONLY`, `DAMAGED`.
    pub fn forget_code(&mut self) -> Result<()> {
        on_session!(self, session => Ok(session.forget_code()?))
    }

    pub fn commit(&mut self) -> Result<bool> {
        let root = self.root()?;
        let expected = std::mem::take(&mut *self.lock_expected());
        for (address, bytes) in expected {
            match &mut self.access {
                Access::Writing(session) => session.expect_foreign(address, bytes),
                Access::Protected(session) => session.expect_foreign(address, bytes),
                Access::Shared(_) | Access::Reading(_) | Access::Nothing => {}
            }
        }
        let changed = on_session!(self, session => {
            if root.pending {
                let block = NonNull::new(root.address as *mut u8);
                // SAFETY: the caller of `set_root`, which exclusive sets a pending root, guaranteed
                // this.
                unsafe { session.set_root(block, root.bytes, root.tag, &root.description) }?;
            }
            Ok(session.commit()?)
        })?;
        self.lock_root().pending = false;
        let foreign = match &mut self.access {
            Access::Writing(session) => session.foreign_pointers(),
            Access::Protected(session) => session.foreign_pointers(),
            Access::Shared(_) | Access::Reading(_) | Access::Nothing => Vec::new(),
        };
        let before = self.count_foreign(foreign.len());
        foreign_reports::report(&self.name, before, &foreign);
        Ok(changed)
    }

    pub fn rollback(&mut self) -> Result<()> {
        let root = on_session!(self, session => {
            session.rollback()?;
            Ok(session.root().into())
        })?;
        *self.lock_root() = root;
        Ok(())
    }

    pub fn checkpoint(&mut self) -> Result<bool> {
        on_session!(self, session => Ok(session.checkpoint()?))
    }

    pub fn sync(&mut self) -> Result<()> {
        on_session!(self, session => Ok(session.sync()?))
    }

    // The next three functions commit with the root that was set, and then change the file.

    pub fn reserve(&mut self, bytes: u64) -> Result<()> {
        self.commit()?;
        on_session!(self, session => Ok(session.reserve(bytes)?))
    }

    pub fn release(&mut self, bytes_max: u64) -> Result<u64> {
        self.commit()?;
        on_session!(self, session => Ok(session.release(bytes_max)?))
    }

    pub fn shrink(&mut self) -> Result<u64> {
        self.commit()?;
        on_session!(self, session => Ok(session.shrink()?))
    }

    /// Moves a snapshot to the newest commit, if there is a newer one. If that cannot be opened,
    /// the object has no regions afterwards, and the caller must close the handle.
    ///
    /// # Errors
    /// `BUSY` and the error of a bad page leave the snapshot as it was. Others may end it: `CLOSED`
    /// if the object is in use, so that it cannot be opened again.
    pub fn refresh(&mut self) -> Result<bool> {
        let Access::Reading(snapshot) = &self.access else { return Ok(false) };
        snapshot.verified()?;
        if snapshot.is_current()? {
            return Ok(false);
        }
        let before = snapshot.sequence();
        self.access = Access::Nothing;
        let snapshot = self.store.read_raw(&self.name).map_err(|error| {
            let failure = Failure::from(error);
            match failure.status {
                // BUSY would say that nothing changed.
                status::BUSY => {
                    let message =
                        format!("{}; the snapshot is closed, open it again", failure.message);
                    Failure::new(status::CLOSED, message)
                }
                _ => failure,
            }
        })?;
        let (root, after) = (snapshot.root().into(), snapshot.sequence());
        self.access = Access::Reading(snapshot);
        if before == after {
            // Another handle in this process holds the older commit, and its mapping was shared
            // again.
            let message = format!(
                "other handles of this process read an older commit of object `{}`; refresh \
                 needs it to be the only one",
                self.name
            );
            return Err(Failure::new(status::BUSY, message));
        }
        *self.lock_root() = root;
        Ok(true)
    }

    pub fn sequence(&self) -> u64 {
        match &self.access {
            Access::Writing(session) => session.sequence(),
            Access::Protected(session) => session.sequence(),
            Access::Reading(snapshot) => snapshot.sequence(),
            Access::Shared(shared) => shared.sequence(),
            Access::Nothing => 0,
        }
    }

    pub fn verified(&self) -> Result<bool> {
        match &self.access {
            Access::Writing(session) => Ok(session.verified()?),
            Access::Protected(session) => Ok(session.verified()?),
            Access::Reading(snapshot) => Ok(snapshot.verified()?),
            Access::Shared(shared) => Ok(shared.verified()?),
            Access::Nothing => Ok(false),
        }
    }

    pub fn info(&self) -> Result<ObjectInfo> {
        match &self.access {
            Access::Writing(session) => Ok(session.info()?),
            Access::Protected(session) => Ok(session.info()?),
            Access::Reading(snapshot) => Ok(snapshot.info()?),
            Access::Shared(shared) => Ok(shared.info()?),
            Access::Nothing => Err(Failure::new(status::CLOSED, "the object is being closed")),
        }
    }

    /// Fails if ending the object would lose changes, or if threads have it locked.
    ///
    /// # Errors
    /// `UNCOMMITTED`, `BUSY`.
    pub fn check_ended(&mut self) -> Result<()> {
        let pending = self.lock_root().pending;
        let changed = match &mut self.access {
            Access::Writing(session) => session.has_changes(),
            Access::Protected(session) => session.has_changes(),
            Access::Shared(shared) if shared.is_in_use() => {
                let message = format!(
                    "threads have object `{}` locked; unlock it before it is closed",
                    self.name
                );
                return Err(Failure::new(status::BUSY, message));
            }
            Access::Shared(_) | Access::Reading(_) | Access::Nothing => Ok(false),
        };
        match changed {
            Ok(false) if !pending => Ok(()),
            Ok(_) => Err(Failure::uncommitted(&self.name)),
            // After a failed flush, nothing can be committed or rolled back.
            Err(_) => Ok(()),
        }
    }

    /// Closes the object and drops uncommitted changes.
    pub fn close(self) -> Result<()> {
        match self.access {
            Access::Writing(session) => Ok(session.close()?),
            Access::Protected(session) => Ok(session.close()?),
            Access::Shared(shared) => Ok(shared.close()?),
            Access::Reading(_) | Access::Nothing => Ok(()),
        }
    }
}
