//! Typed snapshots: one commit of an object, mapped read-only. The snapshots of one commit in a
//! process share one mapping, which ends with the last of them.

pub(super) mod mapped;
pub(super) mod raw;
pub(super) mod root;

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use mapped::MappedCommit;
pub use raw::RawSnapshot;
use root::{check_root, root_as};

use crate::address::AccessKey;
use crate::api::application::ApplicationKey;
use crate::api::info::ObjectInfo;
use crate::api::inner::StoreInner;
use crate::error::Result;
use crate::persist::Persist;

/// One commit of an object, open for reading. Dereferences to the root.
///
/// Opening costs some ten system calls, whatever the object's size. Pages are read when they are
/// touched. Snapshots of one object in one process share one mapping. Other processes may write the
/// object at the same time: a snapshot does not change until it is [refreshed](Snapshot::refresh).
/// Within one process, a session and a snapshot of one object exclude each other.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// let store = evermap::Store::create_new(directory.path().join("store"))?;
/// store.create::<evermap::PVec<u64>, _>("squares", [1, 4, 9])?;
/// let squares = store.read::<evermap::PVec<u64>>("squares")?;
/// assert_eq!(squares.iter().sum::<u64>(), 14);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Snapshot<T> {
    mapped: Arc<MappedCommit>,
    inner: Arc<StoreInner>,
    root: NonNull<T>,
    root_type: PhantomData<T>,
}

// SAFETY: a snapshot gives only `&T`, to memory that this process does not write.
unsafe impl<T: Sync> Send for Snapshot<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Snapshot<T> {}

impl<T: Persist> Snapshot<T> {
    pub(in crate::api) fn open(
        inner: &Arc<StoreInner>,
        name: &str,
        application: Option<ApplicationKey>,
    ) -> Result<Snapshot<T>> {
        let mapped = inner.read_object_for(name, application)?;
        let root = root_as::<T>(inner, name, mapped.superblock())?;
        let path = mapped.reader().file().path();
        // SAFETY: the reader maps the object as of this superblock.
        unsafe { check_root(root, mapped.superblock(), path)? };
        Ok(Snapshot { mapped, inner: Arc::clone(inner), root, root_type: PhantomData })
    }

    /// Puts the mapped commit under a key until the last of its snapshots in this process is
    /// dropped. From now on only threads with the key's rights may read it, also through
    /// [`info`](Snapshot::info).
    ///
    /// # Errors
    /// When the kernel refuses, or the mapping has a key already.
    pub fn set_protection_key(&mut self, key: &AccessKey) -> Result<()> {
        self.mapped.set_protection_key(key)
    }

    /// Returns the object's name when it was opened.
    pub fn name(&self) -> &str {
        self.mapped.name()
    }

    /// Like [`RawSnapshot::regions`](crate::RawSnapshot::regions).
    pub fn regions(&self) -> Vec<(u64, u64)> {
        self.mapped.superblock().regions().iter().map(|r| (r.base, r.length)).collect()
    }

    /// Returns information about the object.
    ///
    /// Counts blocks by reading the allocator's metadata, which takes some microseconds per GiB.
    pub fn info(&self) -> Result<ObjectInfo> {
        self.mapped.info()
    }

    /// Returns true if this is the newest commit. Costs some small reads.
    ///
    /// # Errors
    /// When the files cannot be read.
    pub fn is_current(&self) -> Result<bool> {
        self.mapped.is_current()
    }

    /// Returns a snapshot of the newest commit: this one if it is current, or a new one. While
    /// readers never refresh, a writer's log grows (see [`WriteOptions`](crate::WriteOptions)).
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let store = evermap::Store::create_new(directory.path().join("store"))?;
    /// # store.create::<u64, _>("counter", 7)?;
    /// let mut counter = store.read::<u64>("counter")?;
    /// // ... other processes commit ...
    /// counter = counter.refresh()?;
    /// # assert_eq!(*counter, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Busy` if this process has other snapshots of the older commit. `Damaged` if background
    /// verification found damage. Also the errors of [`Store::read`](crate::Store::read). The
    /// snapshot is closed after an error.
    pub fn refresh(self) -> Result<Snapshot<T>> {
        self.verified()?;
        if self.is_current()? {
            return Ok(self);
        }
        let (inner, name) = (Arc::clone(&self.inner), self.mapped.name().to_string());
        if Arc::strong_count(&self.mapped) > 1 {
            return Err(inner.busy_here(&name, "read at an older commit"));
        }
        let application = ApplicationKey::from_bytes(self.mapped.superblock().application_key);
        drop(self);
        Snapshot::open(&inner, &name, application)
    }

    /// Returns true if every page was compared with its checksum. Returns false while that is in
    /// progress, or if it was not requested, see [`Verify`](crate::Verify).
    ///
    /// # Errors
    /// `Damaged`, with the first bad page.
    pub fn verified(&self) -> Result<bool> {
        self.mapped.verified()
    }

    /// Compares the pages that hold `bytes` with their checksums. Each page is compared once during
    /// the life of this process's mapping of the commit, so a program that calls this before it
    /// uses a part of an object pays only for that part: some 0.2 us per page in memory. Returns
    /// false if the object has no checksums, or if the bytes are not part of it. In both cases the
    /// bytes are unverified.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let store = evermap::Store::create_new(directory.path().join("store"))?;
    /// # store.create::<evermap::PVec<u8>, _>("text", b"some text".as_slice())?;
    /// let text = store.read::<evermap::PVec<u8>>("text")?;
    /// text.verify_root()?; // the address and the length of the vector
    /// assert!(text.verify_bytes(&text[..4])?); // what they lead to
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Damaged`, with the first bad page.
    pub fn verify_bytes(&self, bytes: &[u8]) -> Result<bool> {
        self.mapped.verify_range(bytes.as_ptr() as u64, bytes.len() as u64)
    }

    /// Compares the page that holds the root with its checksum. See
    /// [`verify_bytes`](Snapshot::verify_bytes).
    ///
    /// # Errors
    /// `Damaged`.
    pub fn verify_root(&self) -> Result<bool> {
        self.mapped.verify_root()
    }

    /// Prefaults the whole object, so that later reads wait for no disk and take no page fault
    /// unless memory is reclaimed. Blocks until all pages are mapped. Costs reading what is not in
    /// the page cache, and a page table entry per page.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let store = evermap::Store::create_new(directory.path().join("store"))?;
    /// # store.create::<evermap::PVec<u64>, _>("squares", [1, 4, 9])?;
    /// let squares = store.read::<evermap::PVec<u64>>("squares")?;
    /// squares.warm()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn warm(&self) -> Result<()> {
        self.mapped.reader().warm()
    }

    /// Returns the number of this commit.
    pub fn sequence(&self) -> u64 {
        self.mapped.superblock().commit_sequence
    }
}

impl<T> Deref for Snapshot<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the root's type, place and alignment were checked at opening; the mapping lives
        // in `mapped`, is read-only, and shows one commit while `mapped` lives.
        unsafe { self.root.as_ref() }
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Snapshot<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}
