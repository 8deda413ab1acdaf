//! Raw objects, which have no Rust type: for code that manages its own memory in an object, and for
//! other languages.
//!
//! A raw object has a heap and one root pointer, which is null at first. The programs that use the
//! object define what the root points to. A *tag* of 16 bytes lets programs check the type, and a
//! text describes it for people. Nothing here interprets the program's data in the object, except
//! that commits search it for foreign pointers.

use std::ptr::NonNull;
use std::sync::Arc;

use super::open::{AnySession, OpenSession};
use crate::address::AccessKey;
use crate::alloc::Heap;
use crate::api::application::ApplicationKey;
use crate::api::info::ObjectInfo;
use crate::api::inner::StoreInner;
use crate::commit::WriteOptions;
use crate::error::{Error, Result};
use crate::format::Superblock;
use crate::object::{ForeignPointer, ObjectMap};

/// Root of an object, as recorded in its superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawRoot {
    /// First byte of the root. Null if there is no root.
    pub address: *mut u8,
    /// Size of the root that was passed when it was set.
    pub bytes: u64,
    /// Tag: the id of a Rust type, or the argument of [`RawSession::set_root`]. Zeros for none.
    pub tag: [u8; 16],
    /// Description of the type, truncated to 1024 bytes.
    pub description: String,
}

impl RawRoot {
    pub(in crate::api) fn of(superblock: &Superblock) -> RawRoot {
        RawRoot {
            address: std::ptr::with_exposed_provenance_mut(superblock.root_address as usize),
            bytes: superblock.root_bytes,
            tag: superblock.root_type_id,
            description: superblock.schema(),
        }
    }
}

/// An object open for writing, independent of the root's type. See [`Session`](crate::Session) for
/// what the methods guarantee. None of them interprets the program's data in the object, except
/// that [`commit`](RawSession::commit) searches it for [foreign pointers](crate::ForeignPointers).
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// let store = evermap::Store::create_new(directory.path().join("store"))?;
/// store.create_raw("numbers")?;
/// let mut session = store.write_raw("numbers")?;
/// let block = session.heap().allocate(80, 8)?;
/// // SAFETY: ten numbers fit the block, and nothing else uses it.
/// unsafe { block.cast::<[u64; 10]>().write([7; 10]) };
/// // SAFETY: the tag is not the id of a Rust type.
/// unsafe { session.set_root(Some(block), 80, [0; 16], "ten numbers") }?;
/// session.commit()?;
/// session.close()?;
///
/// let snapshot = store.read_raw("numbers")?; // in this process or in any later one
/// assert_eq!(snapshot.root().bytes, 80);
/// // SAFETY: the root of this object is such an array.
/// assert_eq!(unsafe { *snapshot.root().address.cast::<[u64; 10]>() }, [7; 10]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a session that ends discards uncommitted changes"]
pub struct RawSession {
    open: OpenSession,
}

impl RawSession {
    pub(in crate::api) fn open(
        inner: &Arc<StoreInner>,
        name: &str,
        options: &WriteOptions,
        application: Option<ApplicationKey>,
    ) -> Result<RawSession> {
        let (mut open, ()) = inner.write_object(name, options, application, |_| Ok(()))?;
        open.search_for_foreign(options)?;
        Ok(RawSession { open })
    }

    /// Like [`Session::set_protection_key`](crate::Session::set_protection_key).
    /// [`set_root`](RawSession::set_root) needs the rights as well, because it reads the block.
    ///
    /// # Errors
    /// Same errors as [`Session::set_protection_key`](crate::Session::set_protection_key).
    pub fn set_protection_key(&mut self, key: &AccessKey) -> Result<()> {
        self.open.set_protection_key(key)
    }

    /// Returns the object's name when it was opened.
    pub fn name(&self) -> &str {
        self.open.name()
    }

    /// Returns the object's allocator.
    pub fn heap(&self) -> &Heap {
        self.open.heap()
    }

    /// Like [`RawSession::heap`], for the C library's fast path, which must not panic.
    #[doc(hidden)]
    #[inline]
    pub fn heap_if_open(&self) -> Option<&Heap> {
        self.open.heap_if_open()
    }

    /// Returns the root, including uncommitted changes of it.
    pub fn root(&self) -> RawRoot {
        RawRoot::of(self.open.superblock())
    }

    /// Returns the address ranges that the object's file backs now: base and bytes of each. They
    /// grow with the heap.
    pub fn regions(&self) -> Vec<(u64, u64)> {
        self.open.regions()
    }

    /// Sets the object's root, with the next commit. `root` is an allocated block of the object of
    /// at least `bytes` bytes, or `None` for no root. Does not free the old root's memory.
    ///
    /// # Safety
    /// There are no conditions unless `tag` is the [`type_id`](crate::type_id) of a Rust type. In
    /// that case, `root` holds a valid value of that type, which owns blocks of this object only.
    /// It is freed and changed only through sessions that open the object with that type.
    ///
    /// # Errors
    /// `BadRoot` if `root` is not such a block.
    pub unsafe fn set_root(
        &mut self,
        root: Option<NonNull<u8>>,
        bytes: u64,
        tag: [u8; 16],
        description: &str,
    ) -> Result<()> {
        let (address, bytes) = check_root(self.heap(), self.name(), root, bytes)?;
        let superblock = self.open.superblock_mut();
        superblock.root_address = address;
        superblock.root_bytes = bytes;
        superblock.root_type_id = tag;
        superblock.set_schema(description);
        Ok(())
    }

    /// Commits all changes since the last commit, all of them or none. They are durable according
    /// to the session's level, by default when this returns. Returns false if nothing had changed.
    /// No other thread may use the object's memory or heap during the call.
    ///
    /// # Errors
    /// Same errors as [`Session::commit`](crate::Session::commit), and `ForeignPointer` if the
    /// session [refuses](crate::ForeignPointers::Refuse) such pointers.
    pub fn commit(&mut self) -> Result<bool> {
        self.open.commit()
    }

    /// Discards all changes since the last commit. Pointers to blocks allocated since then dangle.
    ///
    /// # Errors
    /// Same errors as [`Session::rollback`](crate::Session::rollback).
    pub fn rollback(&mut self) -> Result<()> {
        self.open.rollback()
    }

    /// Makes all commits durable, at any durability level.
    ///
    /// # Errors
    /// Same errors as [`Session::sync`](crate::Session::sync).
    pub fn sync(&mut self) -> Result<()> {
        self.open.sync()
    }

    /// Writes all commits to the object file and empties the log. Returns false while other
    /// processes that read the object prevent that.
    ///
    /// # Errors
    /// Same errors as [`Session::checkpoint`](crate::Session::checkpoint).
    pub fn checkpoint(&mut self) -> Result<bool> {
        self.open.checkpoint()
    }

    /// Reserves addresses and disk space for a block of `bytes`, or many smaller ones, so that
    /// allocating them does not fail on a full disk. Commits. Closing this session keeps the
    /// reserved space. Closing a later session may release what is still free.
    ///
    /// # Errors
    /// `DiskFull`, `OutOfAddresses`, and the errors of [`commit`](RawSession::commit).
    pub fn reserve(&mut self, bytes: u64) -> Result<()> {
        self.open.reserve(bytes)
    }

    /// Commits, and returns up to `bytes_max` of the file's unused end to the file system. Returns
    /// the number of bytes released, which is lower if less is unused, and 0 while other processes
    /// read the object. To release free space in the middle of the file, use
    /// [`shrink`](RawSession::shrink).
    ///
    /// # Errors
    /// Same errors as [`commit`](RawSession::commit).
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
    /// Same errors as [`commit`](RawSession::commit).
    pub fn shrink(&mut self) -> Result<u64> {
        self.open.shrink()
    }

    /// Returns true if every page was compared with its checksum. See
    /// [`Session::verified`](crate::Session::verified).
    ///
    /// # Errors
    /// `Damaged`, with the first bad page.
    pub fn verified(&self) -> Result<bool> {
        self.open.verified()
    }

    /// Returns a map of the object for visualisation: its blocks, including uncommitted ones, and
    /// the pages changed since the last commit. Costs a scan of the allocator's metadata and a
    /// comparison of the changed pages. No other thread may use the object's memory or heap during
    /// the call.
    ///
    /// # Errors
    /// When the object's file cannot be read.
    pub fn map(&mut self) -> Result<ObjectMap> {
        self.open.map()
    }

    /// Returns the pointers out of the object that commits found since the last call. Reports each
    /// place once per session, and at most 1,000 places. See
    /// [`ForeignPointers`](crate::ForeignPointers).
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let store = evermap::Store::create_new(directory.path().join("store"))?;
    /// store.create_raw("list")?;
    /// let mut session = store.write_raw("list")?;
    /// let block = session.heap().allocate(8, 8)?;
    /// let elsewhere = Box::new(7u64);
    /// // SAFETY: the block has room for an address.
    /// unsafe { block.cast::<*const u64>().write(&*elsewhere) };
    /// session.commit()?;
    /// let found = session.foreign_pointers();
    /// assert_eq!((found.len(), found[0].at), (1, block.as_ptr() as u64));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn foreign_pointers(&mut self) -> Vec<ForeignPointer> {
        self.open.foreign_pointers()
    }

    /// Excludes a range of the object from the search for foreign pointers in this session. Use it
    /// for data that holds addresses of the process by design, such as a table of functions that
    /// each process rewrites.
    pub fn expect_foreign(&mut self, address: usize, bytes: usize) {
        self.open.expect_foreign(address as u64, bytes as u64);
    }

    /// Allows pointers into this program's code and static data in the object, and records the
    /// program's build with the next commit. The program must be linked at a fixed address
    /// (`-no-pie`). Processes with another build refuse the object with
    /// [`Error::OtherBuild`](crate::Error::OtherBuild).
    ///
    /// # Errors
    /// `Unsupported` for a position-independent program, and for an object whose root leaves no
    /// room for the record. `Damaged` and `NewerFormat` for a record that cannot be read.
    pub fn register_code(&mut self) -> Result<()> {
        self.open.register_code(true)
    }

    /// Deletes the record of builds that pointers of the object lead into, with the next commit.
    /// For a program that has removed or replaced these pointers.
    ///
    /// # Errors
    /// `Damaged` when the record cannot be read.
    pub fn forget_code(&mut self) -> Result<()> {
        self.open.register_code(false)
    }

    /// Returns the number of the last commit. At level `Close`, of the last durable one.
    pub fn sequence(&self) -> u64 {
        self.open.sequence()
    }

    /// Returns information about the object, including uncommitted allocations.
    ///
    /// # Errors
    /// When the file's length cannot be read.
    pub fn info(&self) -> Result<ObjectInfo> {
        self.open.info()
    }

    /// Returns true if there are uncommitted changes. Costs a page-table scan and, up to the first
    /// change, a comparison of the pages that were stored to. No other thread may use the object's
    /// memory or heap during the call.
    ///
    /// # Errors
    /// `DurabilityUnknown` after a failed flush.
    pub fn has_changes(&mut self) -> Result<bool> {
        self.open.has_changes()
    }

    /// Ends the session and discards uncommitted changes. Emits a `tracing` event at warn level if
    /// there are any.
    ///
    /// # Errors
    /// Same errors as [`Session::close`](crate::Session::close).
    pub fn close(mut self) -> Result<()> {
        self.open.end()
    }
}

impl AnySession for RawSession {
    fn as_open(&self) -> &OpenSession {
        &self.open
    }

    fn open_session(&mut self) -> &mut OpenSession {
        &mut self.open
    }
}

/// Returns address and size of a new root, if it is an allocated block that is large enough.
pub(in crate::api) fn check_root(
    heap: &Heap,
    name: &str,
    root: Option<NonNull<u8>>,
    bytes: u64,
) -> Result<(u64, u64)> {
    let Some(block) = root else { return Ok((0, 0)) };
    let address = block.as_ptr().expose_provenance() as u64;
    let usable = heap.usable_size(block) as u64;
    if usable == 0 || usable < bytes {
        return Err(Error::BadRoot { object: name.to_string(), address, bytes });
    }
    Ok((address, bytes))
}

impl std::fmt::Debug for RawSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawSession").field("object", &self.name()).finish_non_exhaustive()
    }
}
