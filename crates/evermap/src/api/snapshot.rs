//! Typed snapshots: one commit of an object, mapped read-only. The snapshots of one commit in a
//! process share one mapping, which ends with the last of them.

use std::any::Any;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use super::application::{ApplicationKey, check_application};
use super::info::ObjectInfo;
use super::inner::{Current, Located, OpenObject, StoreInner};
use super::leases::SharedLeases;
use super::options::Verify;
use crate::address::AccessKey;
use crate::at_fork;
use crate::error::{Error, Result};
use crate::format::Superblock;
use crate::object::{BackgroundVerification, Code, Reader};
use crate::persist::{Bounds, Persist, type_description, type_id};
use crate::schema_difference::SchemaDifference;

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
    shared: Arc<Shared>,
    root: NonNull<T>,
    root_type: PhantomData<T>,
}

// SAFETY: a snapshot gives only `&T`, to memory that this process does not write.
unsafe impl<T: Sync> Send for Snapshot<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Snapshot<T> {}

/// A mapped object, shared by its snapshots.
pub(super) struct Shared {
    inner: Arc<StoreInner>,
    uuid: [u8; 16],
    name: String,
    verification: Option<BackgroundVerification>,
    verified: bool,
    reader: ManuallyDrop<Reader>,
    leases: ManuallyDrop<SharedLeases>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.verification = None;
        // SAFETY: each is dropped once, here, and not used afterwards. The addresses must be free
        // before the entry is removed, because a thread that waits for that maps the object again.
        unsafe {
            ManuallyDrop::drop(&mut self.reader);
            ManuallyDrop::drop(&mut self.leases);
        }
        // In a forked child the list belongs to the parent, and may be locked forever.
        if !at_fork::is_child() {
            self.inner.open_objects().remove(&self.uuid);
        }
    }
}

impl<T: Persist> Snapshot<T> {
    pub(super) fn open(
        inner: &Arc<StoreInner>,
        name: &str,
        application: Option<ApplicationKey>,
    ) -> Result<Snapshot<T>> {
        let shared = Shared::open_for(inner, name, application)?;
        let root = root_as::<T>(inner, name, shared.reader.superblock())?;
        let path = shared.reader.file().path();
        // SAFETY: the reader maps the object as of this superblock.
        unsafe { check_root(root, shared.reader.superblock(), path)? };
        Ok(Snapshot { shared, root, root_type: PhantomData })
    }

    /// Returns the mapping.
    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Returns information about the object.
    ///
    /// Counts blocks by reading the allocator's metadata, which takes some microseconds per GiB.
    pub fn info(&self) -> Result<ObjectInfo> {
        ObjectInfo::of_reader(&self.shared.name, &self.shared.reader)
    }

    /// Returns true if this is the newest commit. Costs some small reads.
    ///
    /// # Errors
    /// When the files cannot be read.
    pub fn is_current(&self) -> Result<bool> {
        self.shared.is_current()
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
        let (inner, name) = (Arc::clone(&self.shared.inner), self.shared.name.clone());
        if Arc::strong_count(&self.shared) > 1 {
            return Err(busy_here(&inner, &name, "read at an older commit"));
        }
        let application = ApplicationKey::from_bytes(self.shared.superblock().application_key);
        drop(self);
        Snapshot::open(&inner, &name, application)
    }

    /// Returns true if every page was compared with its checksum. Returns false while that is in
    /// progress, or if it was not requested, see [`Verify`](crate::Verify).
    ///
    /// # Errors
    /// `Damaged`, with the first bad page.
    pub fn verified(&self) -> Result<bool> {
        self.shared.verified()
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
        self.shared.verify_range(bytes.as_ptr() as u64, bytes.len() as u64)
    }

    /// Compares the page that holds the root with its checksum. See
    /// [`verify_bytes`](Snapshot::verify_bytes).
    ///
    /// # Errors
    /// `Damaged`.
    pub fn verify_root(&self) -> Result<bool> {
        self.shared.verify_root()
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
        self.shared.reader.warm()
    }

    /// Returns the number of this commit.
    pub fn sequence(&self) -> u64 {
        self.shared.reader.superblock().commit_sequence
    }
}

impl<T> Deref for Snapshot<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the root's type, place and alignment were checked at opening; the mapping lives
        // in `shared`, is read-only, and shows one commit while `shared` lives.
        unsafe { self.root.as_ref() }
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Snapshot<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

impl Shared {
    /// Maps an object, or returns the mapping that this process already has.
    pub(super) fn open(inner: &Arc<StoreInner>, name: &str) -> Result<Arc<Shared>> {
        inner.find_and_open(name, |located| Shared::open_located(inner, name, located))
    }

    fn open_located(inner: &Arc<StoreInner>, name: &str, located: Located) -> Result<Arc<Shared>> {
        let uuid = located.uuid;
        let (mut open, current) = inner.open_object(uuid);
        match current {
            Current::Closed => {}
            Current::Writing => return Err(busy_here(inner, name, "written")),
            Current::Shared(core) => {
                // Unlock the list first, because dropping the last handle locks it.
                drop(open);
                drop(core);
                return Err(busy_here(inner, name, "shared"));
            }
            Current::Reading(any) => {
                // Unlock the list first, because dropping the last snapshot locks it.
                drop(open);
                return any.downcast::<Shared>().map_err(|_| busy_here(inner, name, "read"));
            }
        }
        let environment = inner.environment();
        let reader = inner.with_paths(name, uuid, |paths| Reader::open(&environment, paths))?;
        let verification = match inner.options.verify {
            Verify::Superblock => None,
            Verify::Background => Some(reader.verify_in_background()?),
            Verify::Full => reader.verify().map(|()| None)?,
        };
        let leases = located.into_leases(inner, reader.superblock())?;
        let shared = Arc::new(Shared {
            inner: Arc::clone(inner),
            uuid,
            name: name.to_string(),
            verification,
            verified: inner.options.verify == Verify::Full,
            reader: ManuallyDrop::new(reader),
            leases: ManuallyDrop::new(leases),
        });
        let any: Arc<dyn Any + Send + Sync> = shared.clone();
        open.insert(uuid, OpenObject::Reading(Arc::downgrade(&any)));
        Ok(shared)
    }

    /// Like [`open`](Shared::open), and refuses an object of another application.
    pub(super) fn open_for(
        inner: &Arc<StoreInner>,
        name: &str,
        application: Option<ApplicationKey>,
    ) -> Result<Arc<Shared>> {
        let shared = Shared::open(inner, name)?;
        check_application(inner, name, shared.superblock(), application)?;
        Ok(shared)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn superblock(&self) -> &Superblock {
        self.reader.superblock()
    }

    /// Refuses an object whose pointers lead into another build of the code in this process.
    ///
    /// # Errors
    /// `OtherBuild`. `Damaged` if the record of builds cannot be read.
    pub(super) fn check_code(&self) -> Result<()> {
        let code = Code::of(self.reader.file().path(), self.superblock())?;
        code.map_or(Ok(()), |code| code.check(&self.name))
    }

    /// Puts the mapping under an embedder's key.
    pub(super) fn set_protection_key(&self, key: &AccessKey) -> Result<()> {
        self.reader.set_protection_key(key)
    }

    /// Overwrites bytes of the object, for this process only.
    ///
    /// # Safety
    /// The bytes lie in the object's data, and no thread reads them during the call.
    pub(super) unsafe fn patch(&self, address: u64, bytes: &[u8]) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.reader.patch(address, bytes) }
    }

    pub(super) fn verified(&self) -> Result<bool> {
        self.verification.as_ref().map_or(Ok(self.verified), BackgroundVerification::outcome)
    }

    pub(super) fn verify_range(&self, address: u64, length: u64) -> Result<bool> {
        self.reader.verify_range(address, length)
    }

    pub(super) fn verify_root(&self) -> Result<bool> {
        let superblock = self.superblock();
        self.verify_range(superblock.root_address, superblock.root_bytes)
    }

    pub(super) fn is_current(&self) -> Result<bool> {
        let paths = self.inner.paths(&self.name, self.uuid);
        self.reader.is_current(&*self.inner.storage, &paths.log_path)
    }

    pub(super) fn info(&self) -> Result<ObjectInfo> {
        ObjectInfo::of_reader(&self.name, &self.reader)
    }
}

/// Returns the error for an object that this process has open in a conflicting way.
pub(super) fn busy_here(inner: &StoreInner, name: &str, how: &str) -> Error {
    Error::Busy {
        what: format!("object `{name}` of store {}", inner.directory.display()),
        holder: format!(
            "it is being {how} in this process; Store::share lets its threads read and write it"
        ),
    }
}

/// Returns the error for an object whose root is not a `T`.
pub(super) fn schema_mismatch<T: Persist>(
    inner: &StoreInner,
    name: &str,
    superblock: &Superblock,
) -> Error {
    let (stored, expected) = (superblock.schema(), type_description::<T>());
    Error::SchemaMismatch {
        store: inner.directory.clone(),
        object: name.to_string(),
        difference: Box::new(SchemaDifference::between(&stored, expected)),
        stored,
        expected: expected.to_string(),
    }
}

/// Returns the root after comparing its type.
pub(super) fn root_as<T: Persist>(
    inner: &StoreInner,
    name: &str,
    superblock: &Superblock,
) -> Result<NonNull<T>> {
    if superblock.root_type_id != type_id::<T>().0 {
        return Err(schema_mismatch::<T>(inner, name, superblock));
    }
    let address = superblock.root_address;
    let fits = superblock.root_bytes >= size_of::<T>() as u64
        && address.is_multiple_of(align_of::<T>() as u64);
    match NonNull::new(address as *mut T) {
        Some(root) if fits => Ok(root),
        _ => Err(Error::Damaged {
            path: inner.directory.join(name),
            what: "the root",
            found: format!("{address:#x} and {} bytes", superblock.root_bytes),
            expected: format!("{} bytes aligned to {}", size_of::<T>(), align_of::<T>()),
        }),
    }
}

/// Refuses a root whose pointers lead out of its object.
///
/// # Safety
/// The regions of the superblock are mapped for reading, and `root` was returned by [`root_as`].
pub(super) unsafe fn check_root<T: Persist>(
    root: NonNull<T>,
    superblock: &Superblock,
    path: &Path,
) -> Result<()> {
    let data: Vec<(u64, u64)> = superblock
        .regions()
        .iter()
        .map(|region| (region.base + region.meta_length, region.base + region.length))
        .collect();
    // SAFETY: a superblock whose root lies outside its regions is refused when it is read, and the
    // regions are mapped. `root_as` compared the root's bytes and alignment with those of `T`.
    match unsafe { T::is_bounded(root, &Bounds::of(&data)) } {
        true => Ok(()),
        false => Err(Error::Damaged {
            path: path.to_path_buf(),
            what: "a pointer or a length in the root",
            found: "one that leads out of the object".to_string(),
            expected: "pointers into the object's data".to_string(),
        }),
    }
}
