//! Reading: one commit of an object, mapped for as long as somebody looks at it.

use std::any::Any;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use super::application::{ApplicationKey, check_application};
use super::info::ObjectInfo;
use super::inner::{Current, Inner, Located, OpenObject};
use super::leases::SharedLeases;
use super::options::Verify;
use crate::address::AccessKey;
use crate::at_fork;
use crate::error::{Error, Result};
use crate::format::Superblock;
use crate::object::{BackgroundVerification, Code, Reader};
use crate::persist::{Bounds, Persist, SchemaDifference, type_description, type_id};

/// One commit of an object, for reading. Dereferences to the root.
///
/// Opening costs the same for every size of object: some ten system calls; pages are read when
/// they are touched. Snapshots of one object in one process share one mapping. Other processes may
/// write the object meanwhile; a snapshot stays what it is until it is [refreshed](Snapshot::refresh).
/// In the same process, a session and a snapshot of one object exclude each other.
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

// SAFETY: a snapshot gives `&T` only, to memory that nobody in this process writes.
unsafe impl<T: Sync> Send for Snapshot<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Snapshot<T> {}

/// A mapped object, shared by its snapshots.
pub(super) struct Shared {
    inner: Arc<Inner>,
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
        // SAFETY: each is dropped once, here, and not used after. The addresses have to be free
        // before the entry goes: whoever waits for that maps the object again.
        unsafe {
            ManuallyDrop::drop(&mut self.reader);
            ManuallyDrop::drop(&mut self.leases);
        }
        // In a child the list is the parent's, and may be locked for ever.
        if !at_fork::is_child() {
            self.inner.open_objects().remove(&self.uuid);
        }
    }
}

impl<T: Persist> Snapshot<T> {
    pub(super) fn open(
        inner: &Arc<Inner>,
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

    /// The mapping.
    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// What is known about the object.
    ///
    /// Counts blocks by reading the allocator's metadata: some microseconds a GiB.
    pub fn info(&self) -> Result<ObjectInfo> {
        ObjectInfo::of_reader(&self.shared.name, &self.shared.reader)
    }

    /// Is this the newest commit? Costs some small reads.
    ///
    /// # Errors
    /// When the files cannot be read.
    pub fn is_current(&self) -> Result<bool> {
        self.shared.is_current()
    }

    /// The object's newest commit: this snapshot if it is that, else one opened anew. While its
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
    /// `Busy` when this process has other snapshots of the older commit; `Damaged` when a
    /// verification in the background found damage; what [`Store::read`](crate::Store::read)
    /// returns. The snapshot is closed then.
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

    /// Was every page compared with its checksum? True when that is done, false while it is going
    /// on or when it was not asked for, see [`Verify`](crate::Verify).
    ///
    /// # Errors
    /// `Damaged`, with the first bad page.
    pub fn verified(&self) -> Result<bool> {
        self.shared.verified()
    }

    /// Compares the pages that hold `bytes` with their checksums. Each page is compared once in the life
    /// of this process's mapping of the commit, so a program that calls this before it uses a part of an
    /// object pays for the parts that it uses: some 0.2 us a page that is in memory. Returns false if
    /// the object keeps no checksums, or the bytes are not its own: then nothing vouches for them.
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

    /// Compares the page that holds the root with its checksum; see
    /// [`verify_bytes`](Snapshot::verify_bytes).
    ///
    /// # Errors
    /// `Damaged`.
    pub fn verify_root(&self) -> Result<bool> {
        self.shared.verify_root()
    }

    /// Has all of it in memory now, and mapped: looking at it afterwards waits for no disk and takes no page fault, unless memory gets short.
    /// Waits until that is done: costs what the disk takes to read what is not in the page cache, and a page table entry for each page.
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

    /// Number of the commit this is.
    pub fn sequence(&self) -> u64 {
        self.shared.reader.superblock().commit_sequence
    }
}

impl<T> Deref for Snapshot<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the root's type, place and alignment were checked at opening; the mapping
        // lives in `shared`, is read-only and is one commit's for as long as that lives.
        unsafe { self.root.as_ref() }
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Snapshot<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

impl Shared {
    /// Maps an object, or gives the mapping that this process has already.
    pub(super) fn open(inner: &Arc<Inner>, name: &str) -> Result<Arc<Shared>> {
        inner.find_and_open(name, |located| Shared::open_located(inner, name, located))
    }

    fn open_located(inner: &Arc<Inner>, name: &str, located: Located) -> Result<Arc<Shared>> {
        let uuid = located.uuid;
        let (mut open, current) = inner.open_object(uuid);
        match current {
            Current::Closed => {}
            Current::Writing => return Err(busy_here(inner, name, "written")),
            Current::Shared(core) => {
                // The list is unlocked first: the end of the last handle locks it.
                drop(open);
                drop(core);
                return Err(busy_here(inner, name, "shared"));
            }
            Current::Reading(any) => {
                // The list is unlocked first: the last snapshot's end locks it.
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

    /// The same for a program of this application, which the object may not be for.
    pub(super) fn open_for(
        inner: &Arc<Inner>,
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

    /// Refuses code of another build than this process has.
    ///
    /// # Errors
    /// `OtherBuild`, and `Damaged` for a record that cannot be read.
    pub(super) fn check_code(&self) -> Result<()> {
        let code = Code::of(self.reader.file().path(), self.superblock())?;
        code.map_or(Ok(()), |code| code.check(&self.name))
    }

    /// Puts the mapping under an embedder's key.
    pub(super) fn guard_by(&self, key: &AccessKey) -> Result<()> {
        self.reader.guard_by(key)
    }

    /// Lays bytes over the object's own, for this process.
    ///
    /// # Safety
    /// They lie in the object's data, and nobody reads what is there meanwhile.
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

/// The object is open in this process in a way that excludes what was asked for.
pub(super) fn busy_here(inner: &Inner, name: &str, how: &str) -> Error {
    Error::Busy {
        what: format!("object `{name}` of store {}", inner.directory.display()),
        holder: format!(
            "it is being {how} in this process; Store::share lets its threads read and write it"
        ),
    }
}

/// The object's root is no `T`.
pub(super) fn schema_mismatch<T: Persist>(
    inner: &Inner,
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

/// The root, after its type was compared.
pub(super) fn root_as<T: Persist>(
    inner: &Inner,
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
/// The regions of the superblock are mapped for reading, and `root` is of [`root_as`].
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
    // SAFETY: no superblock is read whose root lies outside the regions, which are mapped. `root_as` compared the root's
    // bytes and alignment with those of `T`.
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
