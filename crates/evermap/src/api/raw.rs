//! Objects without a Rust type: for code that manages its own memory in an object, and for other
//! languages.
//!
//! A raw object has a heap and one root pointer, which is null until somebody sets it. What the
//! root points at is between the programs that use the object; a *tag* of 16 bytes and a text say
//! what it is, for programs that want to be sure and for people who look at the object.

use std::ptr::NonNull;
use std::sync::Arc;

use super::application::ApplicationKey;
use super::info::ObjectInfo;
use super::inner::Inner;
use super::open_session::OpenSession;
use super::snapshot::Shared;
use crate::alloc::Heap;
use crate::commit::WriteOptions;
use crate::error::{Error, Result};
use crate::format::Superblock;
use crate::object::{ForeignPointer, ObjectMap};

/// What an object's superblock says of its root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawRoot {
    /// First byte of the root; null for none.
    pub address: *mut u8,
    /// Bytes that were said to belong to it.
    pub bytes: u64,
    /// The tag: the id of a Rust type, or what [`RawSession::set_root`] was given; zeros for none.
    pub tag: [u8; 16],
    /// Description that belongs to the tag, cut at 1024 bytes.
    pub description: String,
}

impl RawRoot {
    fn of(superblock: &Superblock) -> RawRoot {
        RawRoot {
            address: std::ptr::with_exposed_provenance_mut(superblock.root_address as usize),
            bytes: superblock.root_bytes,
            tag: superblock.root_type_id,
            description: superblock.schema(),
        }
    }
}

/// One writer's time with an object, whatever its root is. See [`Session`](crate::Session) for
/// what the methods promise; none of them looks at what the program put into the object.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// let store = evermap::Store::create_new(directory.path().join("store"))?;
/// store.create_raw("numbers")?;
/// let mut session = store.write_raw("numbers")?;
/// let block = session.heap().allocate(80, 8)?;
/// // SAFETY: ten numbers fit the block, which is nobody else's.
/// unsafe { block.cast::<[u64; 10]>().write([7; 10]) };
/// // SAFETY: the tag is no Rust type's.
/// unsafe { session.set_root(Some(block), 80, [0; 16], "ten numbers") }?;
/// session.commit()?;
/// session.close()?;
///
/// let snapshot = store.read_raw("numbers")?; // in this process or in any later one
/// assert_eq!(snapshot.root().bytes, 80);
/// // SAFETY: that is what the root of this object is.
/// assert_eq!(unsafe { *snapshot.root().address.cast::<[u64; 10]>() }, [7; 10]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a session that ends forgets what was not committed"]
pub struct RawSession {
    open: OpenSession,
}

impl RawSession {
    pub(super) fn open(
        inner: &Arc<Inner>,
        name: &str,
        options: &WriteOptions,
        application: Option<ApplicationKey>,
    ) -> Result<RawSession> {
        let (mut open, ()) = OpenSession::open(inner, name, options, application, |_| Ok(()))?;
        open.look_for_foreign(options)?;
        Ok(RawSession { open })
    }

    /// What both kinds of session share.
    pub(super) fn open_session(&mut self) -> &mut OpenSession {
        &mut self.open
    }

    /// The object's name when it was opened.
    pub fn name(&self) -> &str {
        self.open.name()
    }

    /// The object's allocator.
    pub fn heap(&self) -> &Heap {
        self.open.heap()
    }

    /// The root, uncommitted changes of it included.
    pub fn root(&self) -> RawRoot {
        RawRoot::of(self.open.superblock())
    }

    /// Address ranges of the object that its file backs now: base and bytes of each. They grow
    /// with the heap.
    pub fn regions(&self) -> Vec<(u64, u64)> {
        self.open.regions()
    }

    /// Makes `root` the object's root, with the next commit: an allocated block of the object, of
    /// at least `bytes` bytes; `None` for no root. The old root's memory is left alone.
    ///
    /// # Safety
    /// Who uses another tag than a Rust type's [`type_id`](crate::type_id) has nothing to promise.
    /// Else `root` holds a valid value of that type, which owns blocks of this object alone, and nobody
    /// frees or changes it but through sessions that open the object as of that type.
    ///
    /// # Errors
    /// `BadRoot` when it is not such a block.
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

    /// Makes everything done since the last commit durable, all of it or nothing; false when
    /// nothing had changed. No other thread may use the object's memory or heap meanwhile.
    ///
    /// # Errors
    /// As [`Session::commit`](crate::Session::commit).
    pub fn commit(&mut self) -> Result<bool> {
        self.open.commit()
    }

    /// Forgets everything done since the last commit; pointers to what was allocated since are
    /// dangling then.
    ///
    /// # Errors
    /// As [`Session::rollback`](crate::Session::rollback).
    pub fn rollback(&mut self) -> Result<()> {
        self.open.rollback()
    }

    /// Makes everything committed so far durable, at any level.
    ///
    /// # Errors
    /// As [`Session::sync`](crate::Session::sync).
    pub fn sync(&mut self) -> Result<()> {
        self.open.sync()
    }

    /// Writes all commits to the object file and empties the log; false while readers of older
    /// commits are in the way.
    ///
    /// # Errors
    /// As [`Session::checkpoint`](crate::Session::checkpoint).
    pub fn checkpoint(&mut self) -> Result<bool> {
        self.open.checkpoint()
    }

    /// Makes room for a block of `bytes`, or many that are smaller: addresses and disk space, so
    /// that allocating them meets no full disk. Commits, and closing leaves the room with the object.
    ///
    /// # Errors
    /// `DiskFull`, `OutOfAddresses`, and those of [`commit`](RawSession::commit).
    pub fn reserve(&mut self, bytes: u64) -> Result<()> {
        self.open.reserve(bytes)
    }

    /// Commits, and gives up to `bytes_max` of the file's unused end back to the file system. Gives
    /// the bytes: fewer when less is unused, or readers of older commits use it. What is free in the
    /// middle is for [`shrink`](RawSession::shrink).
    ///
    /// # Errors
    /// As [`commit`](RawSession::commit).
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
    /// As [`commit`](RawSession::commit).
    pub fn shrink(&mut self) -> Result<u64> {
        self.open.shrink()
    }

    /// Was every page compared with its checksum? See [`Session::verified`](crate::Session::verified).
    ///
    /// # Errors
    /// `Damaged`, with the first bad page.
    pub fn verified(&self) -> Result<bool> {
        self.open.verified()
    }

    /// What lies where in the object, what is not committed yet included, with the pages that were
    /// changed since the last commit: for pictures. Costs a look at the allocator's metadata, and a
    /// comparison of the changed pages. No other thread may use the
    /// object's memory or heap meanwhile.
    ///
    /// # Errors
    /// When the object's file cannot be looked at.
    pub fn map(&mut self) -> Result<ObjectMap> {
        self.open.map()
    }

    /// Pointers out of the object that commits reported since the last call, each place once a
    /// session, the first 1,000. See [`ForeignPointers`](crate::ForeignPointers).
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

    /// Has commits of this session leave a range of the object alone that has addresses of the
    /// process by design, such as a table of functions that each process writes anew.
    pub fn expect_foreign(&mut self, address: usize, bytes: usize) {
        self.open.expect_foreign(address as u64, bytes as u64);
    }

    /// Makes pointers into this program's code and static data legal in the object, and records the
    /// program's build with the next commit. The program has to be linked at a fixed address
    /// (`-no-pie`). Processes that have another build refuse the object with
    /// [`Error::OtherBuild`](crate::Error::OtherBuild).
    ///
    /// # Errors
    /// `Unsupported` for a program whose address is another one in each process.
    pub fn register_code(&mut self) -> Result<()> {
        self.open.register_code(true)
    }

    /// Takes away, with the next commit, what is recorded of the builds that pointers of the object
    /// lead into: for a program that has removed or replaced them.
    ///
    /// # Errors
    /// `Damaged` when the record cannot be read.
    pub fn forget_code(&mut self) -> Result<()> {
        self.open.register_code(false)
    }

    /// Number of the last commit; at level `Close`, of the last durable one.
    pub fn sequence(&self) -> u64 {
        self.open.sequence()
    }

    /// What is known about the object, uncommitted allocations included.
    ///
    /// # Errors
    /// When its file cannot be looked at.
    pub fn info(&self) -> Result<ObjectInfo> {
        self.open.info()
    }

    /// Returns true if there are changes that no commit has. Costs a page-table scan and, up to the first change, a
    /// comparison of the pages that were stored to. No other thread may use the object's memory or heap
    /// meanwhile.
    ///
    /// # Errors
    /// `DurabilityUnknown` after a failed flush.
    pub fn has_changes(&mut self) -> Result<bool> {
        self.open.has_changes()
    }

    /// Ends the session. Changes that were not committed are forgotten, with a `tracing` event at warn
    /// level if there are any.
    ///
    /// # Errors
    /// As [`Session::close`](crate::Session::close).
    pub fn close(mut self) -> Result<()> {
        self.open.end()
    }
}

/// Address and bytes of what is to be a root, if it is an allocated block that is large enough.
pub(super) fn check_root(
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

/// One commit of an object, for reading, whatever its root is. Its memory is mapped read-only at
/// the object's addresses for as long as the value lives. See [`Snapshot`](crate::Snapshot).
#[derive(Clone)]
pub struct RawSnapshot {
    shared: Arc<Shared>,
}

impl RawSnapshot {
    pub(super) fn open(
        inner: &Arc<Inner>,
        name: &str,
        application: Option<ApplicationKey>,
    ) -> Result<RawSnapshot> {
        let shared = Shared::open_for(inner, name, application)?;
        if !inner.options.other_builds {
            shared.check_code()?;
        }
        Ok(RawSnapshot { shared })
    }

    /// The mapping.
    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The object's name when it was opened.
    pub fn name(&self) -> &str {
        self.shared.name()
    }

    /// The root.
    pub fn root(&self) -> RawRoot {
        RawRoot::of(self.shared.superblock())
    }

    /// Address ranges of the object: base and bytes of each.
    pub fn regions(&self) -> Vec<(u64, u64)> {
        self.shared.superblock().regions().iter().map(|r| (r.base, r.length)).collect()
    }

    /// Lays bytes over what the object has at `address`, for this process only, until the mapping
    /// that its snapshots share ends. For what has to be the process's own in an object, such as
    /// addresses of its code. The pages they lie in become the process's own.
    ///
    /// # Errors
    /// When the kernel refuses.
    ///
    /// # Panics
    /// When the bytes do not lie in the object's data; ask [`contains`](Self::contains).
    ///
    /// # Safety
    /// No reference to the bytes there lives, and nobody reads them meanwhile.
    pub unsafe fn patch(&self, address: usize, bytes: &[u8]) -> Result<()> {
        assert!(self.contains(address, bytes.len()), "a patch lies in the object's data");
        // SAFETY: the caller's promise.
        unsafe { self.shared.patch(address as u64, bytes) }
    }

    /// Compares the page that holds the root with its checksum, before anything in it is followed. See
    /// [`Snapshot::verify_bytes`](crate::Snapshot::verify_bytes).
    ///
    /// # Errors
    /// `Damaged`.
    pub fn verify_root(&self) -> Result<bool> {
        self.shared.verify_root()
    }

    /// Do `length` bytes from `address` lie in the object's data?
    pub fn contains(&self, address: usize, length: usize) -> bool {
        self.shared.superblock().regions().iter().any(|region| {
            let (first, end) = (region.base + region.meta_length, region.base + region.length);
            let last = (address as u64).checked_add(length as u64);
            address as u64 >= first && last.is_some_and(|last| last <= end)
        })
    }

    /// Is this the newest commit? Costs some small reads.
    ///
    /// # Errors
    /// When the files cannot be read.
    pub fn is_current(&self) -> Result<bool> {
        self.shared.is_current()
    }

    /// Was every page compared with its checksum? See [`Snapshot::verified`](crate::Snapshot::verified).
    ///
    /// # Errors
    /// `Damaged`, with the first bad page.
    pub fn verified(&self) -> Result<bool> {
        self.shared.verified()
    }

    /// Number of the commit this is.
    pub fn sequence(&self) -> u64 {
        self.shared.superblock().commit_sequence
    }

    /// What is known about the object.
    ///
    /// # Errors
    /// When its file cannot be looked at.
    pub fn info(&self) -> Result<ObjectInfo> {
        self.shared.info()
    }
}

impl std::fmt::Debug for RawSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawSnapshot").field("object", &self.name()).finish_non_exhaustive()
    }
}
