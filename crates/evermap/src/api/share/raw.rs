//! Sharing an object without a Rust type, and without guards: for other languages.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use super::core::{SharedCore, Turn};
use super::options::ShareOptions;
use crate::alloc::Heap;
use crate::api::home::Use;
use crate::api::info::ObjectInfo;
use crate::api::open_session::OpenSession;
use crate::api::raw::{RawRoot, check_root};
use crate::api::store::Store;
use crate::error::{Error, Result};
use crate::object::ForeignPointer;

/// An object that threads of this process share, whatever its root is. What [`Shared`](crate::Shared)
/// does with guards is done here with calls: each `begin` is ended once, in the same thread. Clones are
/// the same object.
///
/// ```
/// use evermap::{ShareOptions, Store};
/// # let directory = tempfile::tempdir()?;
/// let store = Store::create_new(directory.path().join("store"))?;
/// store.create_raw("numbers")?;
/// let numbers = store.share_raw("numbers", &ShareOptions::new())?;
/// numbers.begin_write()?;
/// let block = numbers.on_heap(|heap| heap.allocate_zeroed(80, 8))??;
/// // SAFETY: the tag is no Rust type's.
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
    /// As [`share_with`](Store::share_with), whatever the object's root is.
    ///
    /// # Errors
    /// As [`share`](Store::share), without `SchemaMismatch`; `OtherBuild`, see
    /// [`Options::other_builds`](crate::Options::other_builds).
    pub fn share_raw(&self, name: &str, options: &ShareOptions) -> Result<RawShared> {
        self.home.run(Use::Open, |inner| {
            let core = SharedCore::open(inner, name, options, self.application, |_, _| Ok(()))?;
            core.look_for_foreign()?;
            Ok(RawShared { core, name: name.to_string() })
        })
    }
}

impl RawShared {
    /// The object's name when it was opened.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The root, as the last writer set it. To follow it, read or write.
    pub fn root(&self) -> RawRoot {
        let facts = self.core.facts();
        RawRoot {
            address: std::ptr::with_exposed_provenance_mut(facts.root_address as usize),
            bytes: facts.root_bytes,
            tag: facts.root_tag,
            description: facts.root_description.clone(),
        }
    }

    /// First byte of the root; 0 for none.
    pub fn root_address(&self) -> usize {
        self.core.facts().root_address as usize
    }

    /// Address ranges of the object: base and bytes of each. To the thread that writes, as its file
    /// backs them now; to others, as of the last commit.
    pub fn regions(&self) -> Vec<(u64, u64)> {
        match Turn::resume(&self.core) {
            Some(turn) => turn.session().regions(),
            None => self.core.facts().regions.clone(),
        }
    }

    /// Number of the last commit.
    pub fn sequence(&self) -> u64 {
        self.core.facts().sequence
    }

    /// Returns true while threads read or write the object, or wait to.
    pub fn is_in_use(&self) -> bool {
        self.core.is_in_use()
    }

    /// Begins to read, as [`Shared::read`](crate::Shared::read) does.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn begin_read(&self) -> Result<()> {
        self.core.begin_read()
    }

    /// Begins to read if no writer is in the way. Returns false, at once, if one is.
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

    /// Begins to write, as [`Shared::write`](crate::Shared::write) does.
    ///
    /// # Errors
    /// As there.
    pub fn begin_write(&self) -> Result<()> {
        let mut turn = self.core.begin_write()?;
        // Stores to the object's memory are not seen: assume that there are some.
        turn.storing();
        // The calls below resume it, and `end_write` ends it.
        std::mem::forget(turn);
        Ok(())
    }

    /// Ends the write section of the calling thread. Changes that were not committed are forgotten, with
    /// a `tracing` event at warn level if there are any.
    ///
    /// # Errors
    /// `NotLocked` when the thread does not write.
    pub fn end_write(&self) -> Result<()> {
        let mut turn = ManuallyDrop::into_inner(self.turn()?);
        turn.has_changes();
        Ok(())
    }

    /// Returns true if there are changes that no commit has. See [`RawSession::has_changes`](crate::RawSession::has_changes).
    ///
    /// # Errors
    /// `NotLocked` when the calling thread does not write.
    pub fn has_changes(&self) -> Result<bool> {
        Ok(self.turn()?.has_changes())
    }

    /// Calls `call` with the object's allocator.
    ///
    /// # Errors
    /// `NotLocked` when the calling thread does not write.
    pub fn on_heap<R>(&self, call: impl FnOnce(&Heap) -> R) -> Result<R> {
        Ok(call(self.turn()?.storing().heap()))
    }

    /// Sets the root, see [`RawSession::set_root`](crate::RawSession::set_root).
    ///
    /// # Safety
    /// As there.
    ///
    /// # Errors
    /// As there, and `NotLocked` when the calling thread does not write.
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

    /// As [`RawSession::foreign_pointers`](crate::RawSession::foreign_pointers), of all handles.
    ///
    /// # Errors
    /// `NotLocked` when the calling thread does not write.
    pub fn foreign_pointers(&self) -> Result<Vec<ForeignPointer>> {
        Ok(self.turn()?.session_mut().foreign_pointers())
    }

    /// As [`RawSession::expect_foreign`](crate::RawSession::expect_foreign), for all handles.
    ///
    /// # Errors
    /// `NotLocked` when the calling thread does not write.
    pub fn expect_foreign(&self, address: usize, bytes: usize) -> Result<()> {
        self.turn()?.session_mut().expect_foreign(address as u64, bytes as u64);
        Ok(())
    }

    /// As [`RawSession::register_code`](crate::RawSession::register_code).
    ///
    /// # Errors
    /// As there, and `NotLocked` when the calling thread does not write.
    pub fn register_code(&self) -> Result<()> {
        self.turn()?.storing().register_code(true)
    }

    /// As [`RawSession::forget_code`](crate::RawSession::forget_code).
    ///
    /// # Errors
    /// As there, and `NotLocked` when the calling thread does not write.
    pub fn forget_code(&self) -> Result<()> {
        self.turn()?.storing().register_code(false)
    }

    /// Says that the calling thread stores to the object's memory after a commit, which may have let
    /// readers in: waits until they have left.
    ///
    /// # Errors
    /// `NotLocked` when the calling thread does not write.
    pub fn exclude_readers(&self) -> Result<()> {
        let _session = self.turn()?.storing();
        Ok(())
    }

    /// As [`SharedWrite::commit`](crate::SharedWrite::commit).
    ///
    /// # Errors
    /// As there, and `NotLocked` when the calling thread does not write.
    pub fn commit(&self) -> Result<bool> {
        self.turn()?.commit()
    }

    /// As [`SharedWrite::rollback`](crate::SharedWrite::rollback).
    ///
    /// # Errors
    /// As there, and `NotLocked` when the calling thread does not write.
    pub fn rollback(&self) -> Result<()> {
        self.turn()?.rollback()
    }

    /// As [`RawSession::reserve`](crate::RawSession::reserve).
    ///
    /// # Errors
    /// As there, and `NotLocked` when the calling thread does not write.
    pub fn reserve(&self, bytes: u64) -> Result<()> {
        self.turn()?.with_readers_out(|open| open.reserve(bytes))
    }

    /// As [`RawSession::release`](crate::RawSession::release).
    ///
    /// # Errors
    /// As there, and `NotLocked` when the calling thread does not write.
    pub fn release(&self, bytes_max: u64) -> Result<u64> {
        self.turn()?.with_readers_out(|open| open.release(bytes_max))
    }

    /// As [`RawSession::shrink`](crate::RawSession::shrink).
    ///
    /// # Errors
    /// As there, and `NotLocked` when the calling thread does not write.
    pub fn shrink(&self) -> Result<u64> {
        self.turn()?.with_readers_out(OpenSession::shrink)
    }

    /// Was every page compared with its checksum? See [`Session::verified`](crate::Session::verified).
    ///
    /// # Errors
    /// `Damaged`, with the first bad page; `NotLocked` when the calling thread does not write.
    pub fn verified(&self) -> Result<bool> {
        self.turn()?.session().verified()
    }

    /// As [`Shared::sync`](crate::Shared::sync).
    ///
    /// # Errors
    /// As there.
    pub fn sync(&self) -> Result<()> {
        self.core.sync()
    }

    /// As [`Shared::checkpoint`](crate::Shared::checkpoint).
    ///
    /// # Errors
    /// As there.
    pub fn checkpoint(&self) -> Result<bool> {
        self.core.checkpoint()
    }

    /// What is known about the object, uncommitted allocations included.
    ///
    /// # Errors
    /// `NotLocked` when the calling thread does not write.
    pub fn info(&self) -> Result<ObjectInfo> {
        self.turn()?.session().info()
    }

    /// As [`Shared::close`](crate::Shared::close).
    ///
    /// # Errors
    /// As there.
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
