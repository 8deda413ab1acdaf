//! Shared raw objects without guards, for other languages. Each `begin` must be ended in the same
//! thread.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use super::core::{SharedCore, Turn};
use super::options::ShareOptions;
use crate::alloc::Heap;
use crate::api::home::Use;
use crate::api::info::ObjectInfo;
use crate::api::session::open::OpenSession;
use crate::api::session::raw::{RawRoot, check_root};
use crate::api::store::Store;
use crate::error::{Error, Result};
use crate::object::ForeignPointer;

/// An object that threads of this process share, independent of the root's type. Calls replace the
/// guards of [`Shared`](crate::Shared): the same thread ends each `begin` once. Clones share one
/// session.
///
/// ```
/// use evermap::{ShareOptions, Store};
/// # let directory = tempfile::tempdir()?;
/// let store = Store::create_new(directory.path().join("store"))?;
/// store.create_raw("numbers")?;
/// let numbers = store.share_raw("numbers", &ShareOptions::new())?;
/// numbers.begin_write()?;
/// let block = numbers.on_heap(|heap| heap.allocate_zeroed(80, 8))??;
/// // SAFETY: the tag is not the id of a Rust type.
/// unsafe { numbers.set_root(Some(block), 80, [0; 16], "ten numbers") }?;
/// numbers.commit()?;
/// numbers.end_write()?;
///
/// numbers.begin_read()?;
/// assert_eq!(numbers.root().bytes, 80);
/// numbers.end_read()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct RawShared {
    core: Arc<SharedCore>,
    name: String,
}

impl Store {
    /// Like [`share_with`](Store::share_with), independent of the root's type.
    ///
    /// # Errors
    /// Same errors as [`share`](Store::share), without `SchemaMismatch`; `OtherBuild`, see
    /// [`Options::other_builds`](crate::Options::other_builds).
    pub fn share_raw(&self, name: &str, options: &ShareOptions) -> Result<RawShared> {
        self.home.run(Use::Open, |inner| {
            let core = inner.share_object(name, options, self.application, |_, _| Ok(()))?;
            core.search_for_foreign()?;
            Ok(RawShared { core, name: name.to_string() })
        })
    }
}

impl RawShared {
    /// Returns the object's name when it was opened.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the root, as the last writer set it. Begin a read or a write before following it.
    pub fn root(&self) -> RawRoot {
        let facts = self.core.facts();
        RawRoot {
            address: std::ptr::with_exposed_provenance_mut(facts.root_address as usize),
            bytes: facts.root_bytes,
            tag: facts.root_tag,
            description: facts.root_description.clone(),
        }
    }

    /// Returns the address of the root, or 0 for none.
    pub fn root_address(&self) -> usize {
        self.core.facts().root_address as usize
    }

    /// Returns the address ranges of the object: base and bytes of each. The thread that writes
    /// gets the ranges that the file backs now. Other threads get those as of the last commit or
    /// call of [`set_root`](RawShared::set_root).
    pub fn regions(&self) -> Vec<(u64, u64)> {
        match Turn::resume(&self.core) {
            Some(turn) => turn.session().regions(),
            None => self.core.facts().regions.clone(),
        }
    }

    /// Returns the number of the last commit.
    pub fn sequence(&self) -> u64 {
        self.core.facts().sequence
    }

    /// Returns true while threads read or write the object, or wait for it.
    pub fn is_in_use(&self) -> bool {
        self.core.is_in_use()
    }

    /// Begins a read, like [`Shared::read`](crate::Shared::read).
    ///
    /// # Errors
    /// Same errors as [`Shared::read`](crate::Shared::read).
    #[inline]
    pub fn begin_read(&self) -> Result<()> {
        self.core.begin_read()
    }

    /// Begins a read if no writer has closed the lock. Otherwise returns false at once.
    ///
    /// # Errors
    /// `WouldDeadlock` when the calling thread writes the object.
    #[inline]
    pub fn try_begin_read(&self) -> Result<bool> {
        self.core.try_begin_read()
    }

    /// Ends one read of the calling thread.
    ///
    /// # Errors
    /// `NotLocked` when it does not read.
    #[inline]
    pub fn end_read(&self) -> Result<()> {
        match self.core.end_read() {
            true => Ok(()),
            false => Err(self.not_locked("reads")),
        }
    }

    /// Begins a write, like [`Shared::write`](crate::Shared::write).
    ///
    /// # Errors
    /// Same errors as [`Shared::write`](crate::Shared::write).
    pub fn begin_write(&self) -> Result<()> {
        let mut turn = self.core.begin_write()?;
        // Stores to the object's memory cannot be observed, so assume that there are some.
        turn.storing();
        // The calls below resume the turn, and `end_write` ends it.
        std::mem::forget(turn);
        Ok(())
    }

    /// Ends the write of the calling thread and discards uncommitted changes. Emits a `tracing`
    /// event at warn level if there are any.
    ///
    /// # Errors
    /// `NotLocked` when the thread does not write.
    pub fn end_write(&self) -> Result<()> {
        let mut turn = ManuallyDrop::into_inner(self.turn()?);
        turn.has_changes();
        Ok(())
    }

    /// Returns true if there are uncommitted changes. See
    /// [`RawSession::has_changes`](crate::RawSession::has_changes).
    ///
    /// # Errors
    /// `NotLocked` if the calling thread does not write.
    pub fn has_changes(&self) -> Result<bool> {
        Ok(self.turn()?.has_changes())
    }

    /// Calls `call` with the object's allocator.
    ///
    /// # Errors
    /// `NotLocked` if the calling thread does not write.
    pub fn on_heap<R>(&self, call: impl FnOnce(&Heap) -> R) -> Result<R> {
        Ok(call(self.turn()?.storing().heap()))
    }

    /// Sets the root like [`RawSession::set_root`](crate::RawSession::set_root).
    ///
    /// # Safety
    /// Same conditions as [`RawSession::set_root`](crate::RawSession::set_root).
    ///
    /// # Errors
    /// `BadRoot` as for [`RawSession::set_root`](crate::RawSession::set_root), and `NotLocked` if
    /// the calling thread does not write.
    pub unsafe fn set_root(
        &self,
        root: Option<NonNull<u8>>,
        bytes: u64,
        tag: [u8; 16],
        description: &str,
    ) -> Result<()> {
        let mut turn = self.turn()?;
        let open = turn.storing();
        let (address, bytes) = check_root(open.heap(), &self.name, root, bytes)?;
        let superblock = open.superblock_mut();
        superblock.root_address = address;
        superblock.root_bytes = bytes;
        superblock.root_type_id = tag;
        superblock.set_schema(description);
        turn.publish();
        Ok(())
    }

    /// Like [`RawSession::foreign_pointers`](crate::RawSession::foreign_pointers), of all handles.
    ///
    /// # Errors
    /// `NotLocked` if the calling thread does not write.
    pub fn foreign_pointers(&self) -> Result<Vec<ForeignPointer>> {
        Ok(self.turn()?.session_mut().foreign_pointers())
    }

    /// Like [`RawSession::expect_foreign`](crate::RawSession::expect_foreign), for all handles.
    ///
    /// # Errors
    /// `NotLocked` if the calling thread does not write.
    pub fn expect_foreign(&self, address: usize, bytes: usize) -> Result<()> {
        self.turn()?.session_mut().expect_foreign(address as u64, bytes as u64);
        Ok(())
    }

    /// Like [`RawSession::register_code`](crate::RawSession::register_code).
    ///
    /// # Errors
    /// Same errors as [`RawSession::register_code`](crate::RawSession::register_code), and
    /// `NotLocked` when the calling thread does not write.
    pub fn register_code(&self) -> Result<()> {
        self.turn()?.storing().register_code(true)
    }

    /// Like [`RawSession::forget_code`](crate::RawSession::forget_code).
    ///
    /// # Errors
    /// Same errors as [`RawSession::forget_code`](crate::RawSession::forget_code), and `NotLocked`
    /// if the calling thread does not write.
    pub fn forget_code(&self) -> Result<()> {
        self.turn()?.storing().register_code(false)
    }

    /// Waits until readers have left. Call it before storing to the object's memory after a commit,
    /// because the commit may have let readers in.
    ///
    /// # Errors
    /// `NotLocked` if the calling thread does not write.
    pub fn exclude_readers(&self) -> Result<()> {
        let _session = self.turn()?.storing();
        Ok(())
    }

    /// Like [`SharedWrite::commit`](crate::SharedWrite::commit).
    ///
    /// # Errors
    /// Same errors as [`SharedWrite::commit`](crate::SharedWrite::commit), and `NotLocked` when the
    /// calling thread does not write.
    pub fn commit(&self) -> Result<bool> {
        self.turn()?.commit()
    }

    /// Like [`SharedWrite::rollback`](crate::SharedWrite::rollback).
    ///
    /// # Errors
    /// Same errors as [`SharedWrite::rollback`](crate::SharedWrite::rollback), and `NotLocked` when
    /// the calling thread does not write.
    pub fn rollback(&self) -> Result<()> {
        self.turn()?.rollback()
    }

    /// Like [`RawSession::reserve`](crate::RawSession::reserve).
    ///
    /// # Errors
    /// Same errors as [`RawSession::reserve`](crate::RawSession::reserve), and `NotLocked` when the
    /// calling thread does not write.
    pub fn reserve(&self, bytes: u64) -> Result<()> {
        self.turn()?.with_readers_out(|open| open.reserve(bytes))
    }

    /// Like [`RawSession::release`](crate::RawSession::release).
    ///
    /// # Errors
    /// Same errors as [`RawSession::release`](crate::RawSession::release), and `NotLocked` when the
    /// calling thread does not write.
    pub fn release(&self, bytes_max: u64) -> Result<u64> {
        self.turn()?.with_readers_out(|open| open.release(bytes_max))
    }

    /// Like [`RawSession::shrink`](crate::RawSession::shrink).
    ///
    /// # Errors
    /// Same errors as [`RawSession::shrink`](crate::RawSession::shrink), and `NotLocked` when the
    /// calling thread does not write.
    pub fn shrink(&self) -> Result<u64> {
        self.turn()?.with_readers_out(OpenSession::shrink)
    }

    /// Returns true if every page was compared with its checksum. See
    /// [`Session::verified`](crate::Session::verified).
    ///
    /// # Errors
    /// `Damaged`, with the first bad page; `NotLocked` if the calling thread does not write.
    pub fn verified(&self) -> Result<bool> {
        self.turn()?.session().verified()
    }

    /// Like [`Shared::sync`](crate::Shared::sync).
    ///
    /// # Errors
    /// Same errors as [`Shared::sync`](crate::Shared::sync).
    pub fn sync(&self) -> Result<()> {
        self.core.sync()
    }

    /// Like [`Shared::checkpoint`](crate::Shared::checkpoint).
    ///
    /// # Errors
    /// Same errors as [`Shared::checkpoint`](crate::Shared::checkpoint).
    pub fn checkpoint(&self) -> Result<bool> {
        self.core.checkpoint()
    }

    /// Returns information about the object, including uncommitted allocations.
    ///
    /// # Errors
    /// `NotLocked` if the calling thread does not write.
    pub fn info(&self) -> Result<ObjectInfo> {
        self.turn()?.session().info()
    }

    /// Like [`Shared::close`](crate::Shared::close).
    ///
    /// # Errors
    /// Same errors as [`Shared::close`](crate::Shared::close).
    pub fn close(self) -> Result<()> {
        Arc::into_inner(self.core).map_or(Ok(()), SharedCore::close)
    }

    fn turn(&self) -> Result<ManuallyDrop<Turn<'_>>> {
        self.core.refuse_in_child()?;
        Turn::resume(&self.core).ok_or_else(|| self.not_locked("writes"))
    }

    #[cold]
    fn not_locked(&self, how: &'static str) -> Error {
        Error::NotLocked { what: format!("object `{}`", self.name), how }
    }
}

impl std::fmt::Debug for RawShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawShared").field("object", &self.name).finish_non_exhaustive()
    }
}
