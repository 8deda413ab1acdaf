//! A heap that lasts, open for writing.
//!
//! What makes the safe methods sound: an object is open once in a program (`names`), so whoever has
//! the [`Heap`] has the object. A reference to the root is given after its type was compared, for
//! as long as the heap is borrowed; every method that changes what the mapping holds (commit,
//! rollback, another root) borrows the heap exclusively. Blocks that `allocate` gives are pointers,
//! and using them is unsafe.

use std::fmt;
use std::ptr::NonNull;

use evermap::__guest::{borrow_root, build_root, release_root};
use evermap::{Build, Mut, Persist};

use crate::error::{Code, Error, Result};
use crate::names::OpenName;
use crate::platform::Writer;
use crate::root::{RawRoot, View};

/// An object that is open for writing: a heap with a root, from which everything in it is reached.
///
/// Stores and allocations are plain memory operations. Nothing of them lasts before
/// [`commit`](Heap::commit), which keeps all of it or nothing.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # evermap_guest::use_store(directory.path().join("store"));
/// use evermap::{PMap, PString};
/// use evermap_guest::Heap;
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
/// let first = &heap.root::<evermap::PVec<u64>>()?[0];
/// heap.commit()?;
/// println!("{first}");
/// # Ok::<(), evermap_guest::Error>(())
/// ```
pub struct Heap {
    // Unmapped before the name is free again.
    writer: Writer,
    name: OpenName,
}

const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Heap>();
};

impl Heap {
    /// Opens the object of this name for writing; makes it when there is none.
    ///
    /// # Errors
    /// `InvalidName`, `Denied`, `Busy`, `Quota`, `OutOfAddresses`, `DiskFull`, `Damaged`,
    /// `MemoryLayout`, `OtherKind`, `Io`.
    pub fn open(name: &str) -> Result<Heap> {
        let name = OpenName::claim(name)?;
        Ok(Heap { writer: Writer::open(name.as_str())?, name })
    }

    /// The object's name.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Has the object a root?
    ///
    /// # Errors
    /// `NotMapped`, after a rollback that failed.
    pub fn has_root(&self) -> Result<bool> {
        Ok(!self.writer.root()?.address.is_null())
    }

    /// The root, for reading.
    ///
    /// # Errors
    /// `NoRoot`, `OtherType`, `Damaged`; `NotMapped`, after a rollback that failed.
    pub fn root<T: Persist + Send + Sync>(&self) -> Result<&T> {
        let root = self.writer.root_as::<T>()?;
        // SAFETY: the type was compared, and the place lies in the object, which stays mapped as
        // long as the heap is borrowed. Whoever changes it borrows the heap exclusively.
        Ok(unsafe { root.as_ref() })
    }

    /// The root, for editing.
    ///
    /// # Errors
    /// As [`root`](Heap::root).
    pub fn root_mut<T: Persist + Send + Sync>(&mut self) -> Result<Mut<'_, T>> {
        let root = self.writer.root_as::<T>()?;
        // SAFETY: as in `root`, and the exclusive borrow of the heap covers the whole object.
        Ok(unsafe { borrow_root(self.writer.heap()?, root) })
    }

    /// The root, for editing; built from `source` where there is none. It lasts from the next
    /// commit on.
    ///
    /// # Errors
    /// `OtherType`, `Damaged`; and what building returns: nothing has changed then.
    pub fn root_or<T, S>(&mut self, source: S) -> Result<Mut<'_, T>>
    where
        T: Persist + Build<S> + Send + Sync,
    {
        if !self.has_root()? {
            let heap = self.writer.heap()?;
            let root =
                build_root::<T, S>(heap, source).map_err(|e| self.writer.allocation_error(&e))?;
            // SAFETY: a valid value of that type, built in this heap.
            if let Err(error) = unsafe { self.writer.set_root(&RawRoot::typed(root)) } {
                // SAFETY: just built, and nobody has it.
                unsafe { release_root(self.writer.heap()?, root) };
                return Err(error);
            }
        }
        self.root_mut()
    }

    /// Makes everything done since the last commit durable, all of it or nothing; false when
    /// nothing had changed.
    ///
    /// # Errors
    /// `DiskFull` and other errors leave everything as it was: commit again later, or roll back.
    /// After `DurabilityUnknown`, open the heap again to see what the disk has.
    pub fn commit(&mut self) -> Result<bool> {
        self.writer.commit()
    }

    /// Forgets everything done since the last commit. Pointers to blocks that were allocated since
    /// are dangling then.
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
    /// `Busy` when another program was quicker to write the object, and those of
    /// [`open`](Heap::open). The heap gives `NotMapped` from then on.
    pub fn rollback(&mut self) -> Result<()> {
        self.writer.rollback()
    }

    /// Ends the use of the object, forgetting what was not committed. Dropping the heap does the
    /// same, but has nobody to tell about errors.
    ///
    /// # Errors
    /// When the host refuses; what was committed is durable all the same.
    pub fn close(self) -> Result<()> {
        self.writer.close()
    }

    /// Allocates `size` bytes at a multiple of `align`; their contents are unspecified. The block
    /// belongs to the object: it is there in the next run if it is committed.
    ///
    /// # Errors
    /// `BadAllocation`; `DiskFull`, `Quota`, `OutOfAddresses` when the object cannot grow.
    pub fn allocate(&self, size: usize, align: usize) -> Result<NonNull<u8>> {
        let block = self.writer.heap()?.allocate(size, align);
        block.map_err(|e| self.writer.allocation_error(&e))
    }

    /// Frees a block.
    ///
    /// # Safety
    /// Nothing refers to the block: no reference that Rust has, and no value in the object that is
    /// used again, as the root would be.
    ///
    /// # Errors
    /// `Other` when it is no allocated block of this object.
    pub unsafe fn free(&self, block: NonNull<u8>) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.writer.heap()?.try_free(block) }.map_err(|e| Error::of(&e, self.name()))
    }

    /// What the object says of its root, whatever that is.
    ///
    /// # Errors
    /// `NotMapped`, after a rollback that failed.
    pub fn root_raw(&self) -> Result<RawRoot> {
        self.writer.root()
    }

    /// Makes a block the object's root, with the next commit; `None` for no root. The old root's
    /// memory is left alone. `tag` tells the kinds of roots apart.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # evermap_guest::use_store(directory.path().join("store"))?;
    /// let mut heap = evermap_guest::Heap::open("numbers")?;
    /// let block = heap.allocate(80, 8)?;
    /// // SAFETY: ten numbers fit the block, which nobody else has; the tag is no Rust type's.
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
    /// Who uses another tag than a Rust type's [`type_id`](evermap::type_id) has nothing to
    /// promise. Else the block holds a valid value of that type, whose blocks are this heap's, and
    /// nobody else frees or changes it.
    ///
    /// # Errors
    /// `BadRoot` when it is no allocated block of the object of at least `bytes` bytes.
    pub unsafe fn set_root_raw(
        &mut self,
        root: Option<NonNull<u8>>,
        bytes: usize,
        tag: [u8; 16],
        description: &str,
    ) -> Result<()> {
        let Some(root) = root else {
            // SAFETY: no root is of no type.
            return unsafe { self.writer.set_root(&RawRoot::none()) };
        };
        let usable = self.writer.heap()?.usable_size(root);
        if usable == 0 || usable < bytes {
            let why = format!("{root:p} is no allocated block of {bytes} bytes in it");
            return Err(self.writer.error(Code::BadRoot, why));
        }
        let (address, description) = (root.as_ptr(), description.to_string());
        // SAFETY: the caller's promise.
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
