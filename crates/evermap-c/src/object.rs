//! An open object: a writer's session or a reader's snapshot, and its root as C sees it.

use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use evermap_core::{Error, Heap, ObjectInfo, RawRoot, RawSession, RawSnapshot, Store};

use crate::failure::{Failure, Result};
use crate::status;
use crate::types::TAG_BYTES;

/// How it is open.
#[allow(clippy::large_enum_variant, reason = "an object is in a box")]
enum Access {
    Writing(RawSession),
    Reading(RawSnapshot),
    /// A refresh failed half-way, or it is being closed.
    Nothing,
}

/// The root, as the next commit will have it.
#[derive(Clone)]
pub struct Root {
    pub address: usize,
    pub bytes: u64,
    pub tag: [u8; TAG_BYTES],
    pub description: String,
    /// The session has not been told yet. It takes a root only while nobody else uses it, and
    /// setting one must be possible while other threads allocate.
    pending: bool,
}

impl From<RawRoot> for Root {
    fn from(root: RawRoot) -> Root {
        let RawRoot { address, bytes, tag, description } = root;
        Root { address: address as usize, bytes, tag, description, pending: false }
    }
}

/// Where region 0 begins.
fn first_address(regions: &[(u64, u64)]) -> u64 {
    regions.first().map_or(0, |(base, _)| *base)
}

pub struct Object {
    /// With its application, for opening the object again.
    store: Store,
    name: String,
    base: u64,
    access: Access,
    root: Mutex<Root>,
}

impl Object {
    pub fn writing(store: Store, session: RawSession) -> Object {
        let (name, root) = (session.name().to_string(), Mutex::new(session.root().into()));
        let base = first_address(&session.regions());
        Object { store, name, base, access: Access::Writing(session), root }
    }

    pub fn reading(store: Store, snapshot: RawSnapshot) -> Object {
        let (name, root) = (snapshot.name().to_string(), Mutex::new(snapshot.root().into()));
        let base = first_address(&snapshot.regions());
        Object { store, name, base, access: Access::Reading(snapshot), root }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn is_writing(&self) -> bool {
        matches!(self.access, Access::Writing(_))
    }

    fn lock_root(&self) -> MutexGuard<'_, Root> {
        self.root.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Errors
    /// `READ_ONLY`.
    #[inline]
    pub fn heap(&self) -> Result<&Heap> {
        match &self.access {
            Access::Writing(session) => Ok(session.heap()),
            _ => Err(Failure::read_only(&self.name)),
        }
    }

    fn session(&mut self) -> Result<&mut RawSession> {
        match &mut self.access {
            Access::Writing(session) => Ok(session),
            _ => Err(Failure::read_only(&self.name)),
        }
    }

    /// Address ranges: base and bytes.
    pub fn regions(&self) -> Vec<(u64, u64)> {
        match &self.access {
            Access::Writing(session) => session.regions(),
            Access::Reading(snapshot) => snapshot.regions(),
            Access::Nothing => Vec::new(),
        }
    }

    /// First address, which is the same in every process and does not change.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Lays bytes over what a reader has at an address, for this process.
    ///
    /// # Safety
    /// Nobody reads the bytes there meanwhile.
    pub unsafe fn patch(&self, address: usize, bytes: &[u8]) -> Result<()> {
        let Access::Reading(snapshot) = &self.access else {
            let message = format!("object `{}` is not open for reading; store to it", self.name);
            return Err(Failure::argument(message));
        };
        if !snapshot.contains(address, bytes.len()) {
            let message = format!("{} bytes at {address:#x} are not the object's", bytes.len());
            return Err(Failure::argument(message));
        }
        // SAFETY: the bytes are data of the object, and nobody reads them, by the caller's promise.
        Ok(unsafe { snapshot.patch(address, bytes) }?)
    }

    pub fn root(&self) -> Root {
        self.lock_root().clone()
    }

    pub fn root_address(&self) -> usize {
        self.lock_root().address
    }

    pub fn root_bytes(&self) -> u64 {
        self.lock_root().bytes
    }

    /// Changes the root with the next commit.
    ///
    /// # Errors
    /// `BAD_ROOT`, `READ_ONLY`.
    pub fn set_root(
        &self,
        address: usize,
        bytes: u64,
        tag: [u8; TAG_BYTES],
        description: &str,
    ) -> Result<()> {
        let heap = self.heap()?;
        let block = NonNull::new(address as *mut u8);
        if block.is_some_and(|block| (heap.usable_size(block) as u64) < bytes.max(1)) {
            let (object, address) = (self.name.clone(), address as u64);
            return Err(Error::BadRoot { object, address, bytes }.into());
        }
        let bytes = if block.is_some() { bytes } else { 0 };
        let description = description.to_string();
        *self.lock_root() = Root { address, bytes, tag, description, pending: true };
        Ok(())
    }

    pub fn commit(&mut self) -> Result<bool> {
        let root = self.root();
        let session = self.session()?;
        if root.pending {
            let block = NonNull::new(root.address as *mut u8);
            session.set_root(block, root.bytes, root.tag, &root.description)?;
        }
        let changed = session.commit()?;
        self.lock_root().pending = false;
        Ok(changed)
    }

    pub fn rollback(&mut self) -> Result<()> {
        let session = self.session()?;
        session.rollback()?;
        let root = session.root().into();
        *self.lock_root() = root;
        Ok(())
    }

    pub fn checkpoint(&mut self) -> Result<bool> {
        Ok(self.session()?.checkpoint()?)
    }

    pub fn sync(&mut self) -> Result<()> {
        Ok(self.session()?.sync()?)
    }

    /// Commits with the root that was set, and then does something to the object's file.
    fn after_commit<T>(
        &mut self,
        call: impl FnOnce(&mut RawSession) -> evermap_core::Result<T>,
    ) -> Result<T> {
        self.commit()?;
        Ok(call(self.session()?)?)
    }

    pub fn reserve(&mut self, bytes: u64) -> Result<()> {
        self.after_commit(|session| session.reserve(bytes))
    }

    pub fn release(&mut self, bytes_max: u64) -> Result<u64> {
        self.after_commit(|session| session.release(bytes_max))
    }

    pub fn shrink(&mut self) -> Result<u64> {
        self.after_commit(RawSession::shrink)
    }

    /// Goes on to the newest commit, if there is one; a failure other than `BUSY` leaves nothing.
    pub fn refresh(&mut self) -> Result<bool> {
        let Access::Reading(snapshot) = &self.access else { return Ok(false) };
        snapshot.verified()?;
        if snapshot.is_current()? {
            return Ok(false);
        }
        let before = snapshot.sequence();
        self.access = Access::Nothing;
        let snapshot = self.store.read_raw(&self.name)?;
        let (root, after) = (snapshot.root().into(), snapshot.sequence());
        self.access = Access::Reading(snapshot);
        if before == after {
            // Somebody else here holds the older commit, and its mapping was shared again.
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
            Access::Reading(snapshot) => snapshot.sequence(),
            Access::Nothing => 0,
        }
    }

    pub fn verified(&self) -> Result<bool> {
        match &self.access {
            Access::Writing(session) => Ok(session.verified()?),
            Access::Reading(snapshot) => Ok(snapshot.verified()?),
            Access::Nothing => Ok(false),
        }
    }

    pub fn info(&self) -> Result<ObjectInfo> {
        match &self.access {
            Access::Writing(session) => Ok(session.info()?),
            Access::Reading(snapshot) => Ok(snapshot.info()?),
            Access::Nothing => Err(Failure::new(status::CLOSED, "the object is being closed")),
        }
    }

    /// Ends it, forgetting what was not committed.
    pub fn close(self) -> Result<()> {
        match self.access {
            Access::Writing(session) => Ok(session.close()?),
            Access::Reading(_) | Access::Nothing => Ok(()),
        }
    }
}
