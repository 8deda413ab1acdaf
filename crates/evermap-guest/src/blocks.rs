//! Named blocks: an object whose root is a table of names, as C programs use it. The table is the
//! same as in the library for native programs, see [`evermap_heap::nvheap`].

use std::ptr::NonNull;

use evermap_heap::nvheap::{
    ALIGNMENT, DESCRIPTION, NAME_BYTES_MAX, Named, NamedMut, Root, TAG, find, insert, remove,
};

use crate::error::{Code, Error, Result};
use crate::heap::Heap;
use crate::root::View;
use crate::snapshot::Snapshot;

/// A mapped object, for reading its table of names.
struct Reading<'a, V>(&'a V);

/// A heap, for changing its table of names. The borrow is exclusive.
struct Writing<'a>(&'a mut Heap);

impl<V: View> Named for Reading<'_, V> {
    type Error = Error;

    fn root(&self) -> Result<Root> {
        let root = self.0.root()?;
        Ok(Root { address: root.address.addr(), tag: root.tag, description: root.description })
    }

    fn place(&self, address: usize, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        self.0.place(address, bytes, align)
    }

    fn other_root(&self, description: &str) -> Error {
        let why = format!("its root is `{description}`, not a table of names");
        self.0.error(Code::OtherType, why)
    }

    fn damaged(&self) -> Error {
        self.0.error(Code::Damaged, "its table of names is broken; restore a backup")
    }
}

impl Named for Writing<'_> {
    type Error = Error;

    fn root(&self) -> Result<Root> {
        Reading(self.0.writer()).root()
    }

    fn place(&self, address: usize, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        Reading(self.0.writer()).place(address, bytes, align)
    }

    fn other_root(&self, description: &str) -> Error {
        Reading(self.0.writer()).other_root(description)
    }

    fn damaged(&self) -> Error {
        Reading(self.0.writer()).damaged()
    }
}

impl NamedMut for Writing<'_> {
    fn allocate(&mut self, bytes: usize) -> Result<NonNull<u8>> {
        self.0.allocate(bytes, ALIGNMENT)
    }

    unsafe fn free(&mut self, block: NonNull<u8>) -> Result<()> {
        // SAFETY: nothing refers to the block, as the caller guarantees.
        unsafe { self.0.free(block) }
    }

    fn set_table(&mut self, table: NonNull<u8>, bytes: usize) -> Result<()> {
        // SAFETY: the tag does not belong to a Rust type.
        unsafe { self.0.set_root_raw(Some(table), bytes, TAG, DESCRIPTION) }
    }
}

impl Heap {
    /// Returns the block with this name for reading.
    ///
    /// # Errors
    /// `OtherType` if the object's root is not a table of names, `Damaged`.
    pub fn block(&self, name: &str) -> Result<Option<&[u8]>> {
        // SAFETY: the block lies in the object, which stays mapped while the heap is borrowed. Safe
        // code writes to it only through an exclusive borrow of the heap.
        Ok(self.block_raw(name.as_bytes())?.map(|block| unsafe { block.as_ref() }))
    }

    /// Returns the block with this name for writing.
    ///
    /// # Errors
    /// Same errors as [`block`](Heap::block).
    pub fn block_mut(&mut self, name: &str) -> Result<Option<&mut [u8]>> {
        // SAFETY: the block lies in the mapped object, and the borrow of the heap is exclusive.
        Ok(self.block_raw(name.as_bytes())?.map(|mut block| unsafe { block.as_mut() }))
    }

    /// Returns the block with this name as a pointer, for code that uses several blocks at a time
    /// or stores pointers in them. It is valid until the block is freed or a rollback.
    ///
    /// # Errors
    /// Same errors as [`block`](Heap::block).
    pub fn block_raw(&self, name: &[u8]) -> Result<Option<NonNull<[u8]>>> {
        find(&Reading(self.writer()), name)
    }

    /// Allocates a zeroed block with a name (1 to 255 bytes), aligned to 16. This and later runs
    /// find it by its name. Memory that is already zero is not written, so unused parts of a large
    /// block take no disk space. For a block that is written as a whole at once,
    /// [`allocate_named_with`](Heap::allocate_named_with) is cheaper.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # evermap_guest::use_store(directory.path().join("store"))?;
    /// let mut heap = evermap_guest::Heap::open("nvheap")?;
    /// heap.allocate_named("greeting", 5)?.copy_from_slice(b"hello");
    /// heap.commit()?;
    /// assert_eq!(heap.block("greeting")?, Some(&b"hello"[..]));
    /// # heap.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `AlreadyExists`, `InvalidName`, `OtherType`, `Damaged`, and the errors of
    /// [`allocate`](Heap::allocate). After an error nothing has changed.
    pub fn allocate_named(&mut self, name: &str, bytes: usize) -> Result<&mut [u8]> {
        self.allocate_named_with(name, bytes, |_| Ok(()))
    }

    /// Allocates a named block with unspecified contents.
    ///
    /// # Errors
    /// Same errors as [`allocate_named`](Heap::allocate_named).
    pub fn allocate_named_raw(&mut self, name: &[u8], bytes: usize) -> Result<NonNull<[u8]>> {
        self.check_new_name(name)?;
        let block = NonNull::slice_from_raw_parts(self.allocate_block(bytes)?, bytes);
        self.name_block(name, block)?;
        Ok(block)
    }

    /// Checks that a new block can get this name.
    pub(crate) fn check_new_name(&self, name: &[u8]) -> Result<()> {
        check_name(self.writer(), name)?;
        if self.block_raw(name)?.is_some() {
            let why = format!("it already has a block `{}`", String::from_utf8_lossy(name));
            return Err(self.writer().error(Code::AlreadyExists, why));
        }
        Ok(())
    }

    pub(crate) fn allocate_block(&self, bytes: usize) -> Result<NonNull<u8>> {
        self.allocate(bytes, ALIGNMENT)
    }

    /// Enters a new block under its name, which was checked before. Frees the block on error.
    pub(crate) fn name_block(&mut self, name: &[u8], block: NonNull<[u8]>) -> Result<()> {
        let named = insert(&mut Writing(self), name, block.cast(), block.len());
        if named.is_err() {
            // SAFETY: the block was just allocated, and nothing refers to it.
            unsafe { self.free(block.cast())? };
        }
        named
    }

    /// Frees the block with this name, and removes the name. Returns false if the name does not
    /// exist.
    ///
    /// # Errors
    /// `OtherType`, `Damaged`.
    pub fn free_named(&mut self, name: &str) -> Result<bool> {
        // SAFETY: references to the block borrow the heap, which is borrowed exclusively here. Uses
        // of raw pointers to blocks are unsafe.
        unsafe { self.free_named_raw(name.as_bytes()) }
    }

    /// # Safety
    /// The caller does not use the block again.
    pub(crate) unsafe fn free_named_raw(&mut self, name: &[u8]) -> Result<bool> {
        let Some(block) = remove(&mut Writing(self), name)? else { return Ok(false) };
        // SAFETY: the caller does not use the block again, and the table no longer refers to it.
        unsafe { self.free(block.cast())? };
        Ok(true)
    }
}

impl Snapshot {
    /// Returns the block with this name.
    ///
    /// # Errors
    /// `OtherType` if the object's root is not a table of names, `Damaged`.
    pub fn block(&self, name: &str) -> Result<Option<&[u8]>> {
        // SAFETY: the block lies in the object, which stays mapped while the snapshot is borrowed.
        // Safe code does not write to it.
        Ok(self.block_raw(name.as_bytes())?.map(|block| unsafe { block.as_ref() }))
    }

    /// Returns the block with this name as a pointer, valid while the snapshot is open.
    ///
    /// # Errors
    /// Same errors as [`block`](Snapshot::block).
    pub fn block_raw(&self, name: &[u8]) -> Result<Option<NonNull<[u8]>>> {
        find(&Reading(self.reader()), name)
    }
}

fn check_name(view: &impl View, name: &[u8]) -> Result<()> {
    if (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains(&0) {
        return Ok(());
    }
    let why = format!(
        "a block's name must have 1 to {NAME_BYTES_MAX} bytes, none of them zero; this one has {} bytes",
        name.len()
    );
    Err(view.error(Code::InvalidName, why))
}
