//! Persistent heaps, open for writing.
//!
//! The safe methods are sound because a program opens an object only once (`names`), so the owner
//! of the [`Heap`] owns the object. A reference to the root is returned only after its type was
//! compared, and borrows the heap. Every method that changes the mapping (commit, rollback, another
//! root) borrows the heap exclusively. `allocate` returns raw pointers, and using them is unsafe.

use std::fmt;
use std::ptr::NonNull;

use evermap_heap::persist::{build_block, release_value};
use evermap_heap::{Build, Mut, Persist};

use crate::error::{Code, Error, Result};
use crate::names::OpenName;
use crate::platform::Writer;
use crate::root::{RawRoot, View};

/// An object open for writing: a heap with a root, from which all its data are reached.
///
/// Stores and allocations are plain memory operations. They become durable at the next
/// [`commit`](Heap::commit), all together or not at all.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # evermap_guest::use_store(directory.path().join("store"));
/// use evermap_guest::{Heap, PMap, PString};
///
/// let mut heap = Heap::open("words")?;
/// let mut words = heap.root_or::<PMap<PString, u64>, _>(PMap::new())?;
/// *words.get_or_insert_with("again", || 0)? += 1;
/// heap.commit()?;
///
/// assert_eq!(heap.root::<PMap<PString, u64>>()?.get("again"), Some(&1));
/// # heap.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// References into the object cannot outlive a commit:
///
/// ```compile_fail
/// let mut heap = evermap_guest::Heap::open("numbers")?;
/// let first = &heap.root::<evermap_guest::PVec<u64>>()?[0];
/// heap.commit()?;
/// println!("{first}");
/// # Ok::<(), evermap_guest::Error>(())
/// ```
pub struct Heap {
    // Dropped before the name, so the object is unmapped before the name is free again.
    writer: Writer,
    name: OpenName,
}

const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Heap>();
};

impl Heap {
    /// Opens the object with this name for writing. Creates it if it does not exist.
    ///
    /// # Errors
    /// `InvalidName`, `Denied`, `Busy`, `Quota`, `OutOfAddresses`, `DiskFull`, `Damaged`,
    /// `MemoryLayout`, `OtherKind`, `Io`.
    pub fn open(name: &str) -> Result<Heap> {
        let name = OpenName::claim(name)?;
        Ok(Heap { writer: Writer::open(name.as_str())?, name })
    }

    /// Returns the object's name.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Returns true if the object has a root.
    ///
    /// # Errors
    /// `NotMapped` after a failed rollback.
    pub fn has_root(&self) -> Result<bool> {
        Ok(!self.writer.root()?.address.is_null())
    }

    /// Returns the root for reading.
    ///
    /// # Errors
    /// `NoRoot`, `OtherType`, `Damaged`; `NotMapped` after a failed rollback.
    pub fn root<T: Persist + Send + Sync>(&self) -> Result<&T> {
        let root = self.writer.root_as::<T>()?;
        // SAFETY: the type was compared, and the root lies in the object. The object stays mapped
        // while the heap is borrowed, and changes need an exclusive borrow of the heap.
        Ok(unsafe { root.as_ref() })
    }

    /// Returns the root for editing.
    ///
    /// # Errors
    /// Same errors as [`root`](Heap::root).
    pub fn root_mut<T: Persist + Send + Sync>(&mut self) -> Result<Mut<'_, T>> {
        let root = self.writer.root_as::<T>()?;
        // SAFETY: the type was compared, the root lies in the object, and the exclusive borrow of
        // the heap covers the whole object.
        Ok(unsafe { Mut::from_raw(self.writer.heap()?, root) })
    }

    /// Returns the root for editing. Builds it from `source` if there is none; the new root becomes
    /// durable with the next commit.
    ///
    /// # Errors
    /// `OtherType`, `Damaged`, and the errors of building; after these nothing has changed.
    pub fn root_or<T, S>(&mut self, source: S) -> Result<Mut<'_, T>>
    where
        T: Persist + Build<S> + Send + Sync,
    {
        if !self.has_root()? {
            let heap = self.writer.heap()?;
            let root =
                build_block::<T, S>(heap, source).map_err(|e| Error::of_heap(&e, self.name()))?;
            // SAFETY: `root` is a valid value of type `T`, built in this heap.
            if let Err(error) = unsafe { self.writer.set_root(&RawRoot::typed(root)) } {
                // SAFETY: the value was just built, and nothing refers to it.
                unsafe {
                    let heap = self.writer.heap()?;
                    release_value(heap, root);
                    heap.free(root.cast());
                }
                return Err(error);
            }
        }
        self.root_mut()
    }

    /// Makes all changes since the last commit durable, all of them or none. Returns false if
    /// nothing had changed.
    ///
    /// # Errors
    /// After `DiskFull` and other errors the uncommitted changes are still there: commit again
    /// later, or roll back. After `DurabilityUnknown`, open the heap again to see which commit the
    /// disk has.
    pub fn commit(&mut self) -> Result<bool> {
        self.writer.commit()
    }

    /// Discards all changes since the last commit. Pointers to blocks that were allocated since
    /// then become dangling.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # evermap_guest::use_store(directory.path().join("store"))?;
    /// let mut heap = evermap_guest::Heap::open("number")?;
    /// heap.root_or::<u64, _>(1)?;
    /// heap.commit()?;
    /// *heap.root_mut::<u64>()? = 2;
    /// heap.rollback()?;
    /// assert_eq!(*heap.root::<u64>()?, 1);
    /// # heap.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Busy` if another program has now opened the object for writing, and the errors of
    /// [`open`](Heap::open). After an error all calls return `NotMapped`.
    pub fn rollback(&mut self) -> Result<()> {
        self.writer.rollback()
    }

    /// Closes the object and discards uncommitted changes. Dropping the heap does the same but
    /// ignores errors.
    ///
    /// # Errors
    /// The host's error; commits are durable nevertheless.
    pub fn close(self) -> Result<()> {
        self.writer.close()
    }

    /// Allocates `size` bytes at a multiple of `align`, with unspecified contents. The block
    /// belongs to the object: if it is committed, the next run finds it.
    ///
    /// # Errors
    /// `BadAllocation`; `DiskFull`, `Quota`, `OutOfAddresses` if the object cannot grow.
    pub fn allocate(&self, size: usize, align: usize) -> Result<NonNull<u8>> {
        let block = self.writer.heap()?.allocate(size, align);
        block.map_err(|e| Error::of_heap(&e, self.name()))
    }

    /// Frees a block.
    ///
    /// # Safety
    /// Nothing refers to the block: neither a Rust reference nor a value in the object that is
    /// still used, such as the root.
    ///
    /// # Errors
    /// `Other` if it is not an allocated block of this object.
    pub unsafe fn free(&self, block: NonNull<u8>) -> Result<()> {
        // SAFETY: the caller keeps no references to the block.
        unsafe { self.writer.heap()?.try_free(block) }.map_err(|e| Error::of_heap(&e, self.name()))
    }

    /// Returns the root record without checking its type.
    ///
    /// # Errors
    /// `NotMapped` after a failed rollback.
    pub fn root_raw(&self) -> Result<RawRoot> {
        self.writer.root()
    }

    /// Makes a block the object's root with the next commit; `None` removes the root. The old
    /// root's memory is not freed. `tag` distinguishes kinds of roots.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # evermap_guest::use_store(directory.path().join("store"))?;
    /// let mut heap = evermap_guest::Heap::open("numbers")?;
    /// let block = heap.allocate(80, 8)?;
    /// // SAFETY: ten numbers fit into the new block; the tag does not belong to a Rust type.
    /// unsafe {
    ///     block.cast::<[u64; 10]>().write([7; 10]);
    ///     heap.set_root_raw(Some(block), 80, *b"ten numbers.....", "ten numbers")?;
    /// }
    /// heap.commit()?;
    /// assert_eq!(heap.root_raw()?.bytes, 80);
    /// # heap.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Safety
    /// If the tag is the [`type_id`](crate::type_id) of a Rust type, the block holds a valid
    /// value of that type whose blocks belong to this heap, and no other code frees or changes it.
    /// Other tags have no requirements.
    ///
    /// # Errors
    /// `BadRoot` if it is not an allocated block of the object with at least `bytes` bytes.
    pub unsafe fn set_root_raw(
        &mut self,
        root: Option<NonNull<u8>>,
        bytes: usize,
        tag: [u8; 16],
        description: &str,
    ) -> Result<()> {
        let Some(root) = root else {
            // SAFETY: an object without a root has no type to match.
            return unsafe { self.writer.set_root(&RawRoot::none()) };
        };
        let usable = self.writer.heap()?.usable_size(root);
        if usable == 0 || usable < bytes {
            let why = format!("{root:p} is not an allocated block of {bytes} bytes in this object");
            return Err(self.writer.error(Code::BadRoot, why));
        }
        let (address, description) = (root.as_ptr(), description.to_string());
        // SAFETY: the caller passes a root of the tag's type.
        unsafe { self.writer.set_root(&RawRoot { address, bytes: bytes as u64, tag, description }) }
    }

    pub(crate) fn writer(&self) -> &Writer {
        &self.writer
    }
}

impl fmt::Debug for Heap {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Heap").field("name", &self.name()).finish_non_exhaustive()
    }
}
