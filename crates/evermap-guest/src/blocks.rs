//! Named blocks: an object whose root is a table of names, as C programs use it.
//!
//! The table has the format of `nvheap.h`, with the machine's pointer size, so programs in C and in
//! Rust can read each other's. It contains the number of names, the number of buckets (a power of
//! two) and one list of entries per bucket. A name is in the list of its hash (FNV-1a, 64 bits).
//!
//! Pointers are followed only if they lead into the object, and no more entries of a list are read
//! than there are names. So an object from another program cannot lead a reader outside the object
//! or into an endless loop.

use std::mem::offset_of;
use std::ptr::NonNull;

use crate::error::{Code, Result};
use crate::heap::Heap;
use crate::platform::Writer;
use crate::root::{RawRoot, View};
use crate::snapshot::Snapshot;

const TAG: [u8; 16] = *b"evermap.nvheap.1";
const DESCRIPTION: &str = "table of names of an nvheap";
const BUCKETS_FIRST: usize = 64;
/// Alignment of every block, the same as `malloc`'s.
const ALIGNMENT: usize = 16;
const NAME_BYTES_MAX: usize = 255;

#[repr(C)]
struct Table {
    names: u64,
    buckets: u64,
    // `buckets` pointers to entries follow.
}

#[repr(C)]
struct Entry {
    next: *mut Entry,
    block: *mut u8,
    size: u64,
    hash: u64,
    name_bytes: u64,
    // The name and a zero byte follow.
}

const _: () = assert!(size_of::<Table>() == 16);
const _: () = assert!(offset_of!(Entry, size) == 2 * size_of::<usize>());
const _: () = assert!(size_of::<Entry>() == 2 * size_of::<usize>() + 24);

/// A table whose buckets lie in the object.
#[derive(Clone, Copy)]
struct Buckets {
    table: NonNull<Table>,
    names: u64,
    buckets: usize,
}

/// A found entry: the pointer to it, and its contents.
struct Found {
    place: NonNull<*mut Entry>,
    entry: NonNull<Entry>,
    next: *mut Entry,
    block: NonNull<[u8]>,
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
        Ok(find(self.writer(), name)?.map(|found| found.block))
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
        if find(self.writer(), name)?.is_some() {
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
        let named = self.insert(name, block.cast(), block.len());
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
        let Some(table) = table(self.writer())? else { return Ok(false) };
        let Some(found) = find(self.writer(), name)? else { return Ok(false) };
        // SAFETY: table and entry lie in the object, and this function borrows the heap
        // exclusively. The entry is removed from its list before it is freed.
        unsafe {
            found.place.write(found.next);
            (&raw mut (*table.table.as_ptr()).names).write(table.names.saturating_sub(1));
            self.free(found.entry.cast())?;
            self.free(found.block.cast())?;
        }
        Ok(true)
    }

    /// Enters a block under a name that is not in the table.
    fn insert(&mut self, name: &[u8], block: NonNull<u8>, bytes: usize) -> Result<()> {
        let table = self.table_with_room()?;
        let made = self.allocate(size_of::<Entry>() + name.len() + 1, ALIGNMENT)?.cast::<Entry>();
        let hash = hash_of(name);
        let place = table.bucket(hash);
        // SAFETY: the new block has room for the entry and the name, and nothing else refers to it.
        // The table lies in the object, and this function borrows the heap exclusively.
        unsafe {
            made.write(Entry {
                next: place.read(),
                block: block.as_ptr(),
                size: bytes as u64,
                hash,
                name_bytes: name.len() as u64,
            });
            let text = made.add(1).cast::<u8>();
            text.copy_from_nonoverlapping(NonNull::from(name).cast(), name.len());
            text.add(name.len()).write(0);
            place.write(made.as_ptr());
            (&raw mut (*table.table.as_ptr()).names).write(table.names + 1);
        }
        Ok(())
    }

    /// Returns the table. Creates or doubles it if it has as many names as lists.
    fn table_with_room(&mut self) -> Result<Buckets> {
        let old = table(self.writer())?;
        if let Some(old) = old.filter(|old| old.names < old.buckets as u64) {
            return Ok(old);
        }
        let (names, had) = old.map_or((0, 0), |old| (old.names, old.buckets));
        let buckets = (had * 2).max(BUCKETS_FIRST);
        let bytes = table_bytes(buckets);
        let block = self.allocate(bytes, ALIGNMENT)?;
        let new = Buckets { table: block.cast(), names, buckets };
        // SAFETY: the new block has `bytes` bytes, and nothing else refers to it.
        unsafe {
            block.write_bytes(0, bytes);
            new.table.write(Table { names, buckets: buckets as u64 });
        }
        if let Some(old) = old
            && let Err(error) = move_entries(self.writer(), old, new)
        {
            // SAFETY: nothing refers to the new block.
            unsafe { self.free(block)? };
            return Err(error);
        }
        // SAFETY: the tag does not belong to a Rust type.
        unsafe { self.set_root_raw(Some(block), bytes, TAG, DESCRIPTION)? };
        if let Some(old) = old {
            // SAFETY: nothing refers to the old table any more.
            unsafe { self.free(old.table.cast())? };
        }
        Ok(new)
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
        Ok(find(self.reader(), name)?.map(|found| found.block))
    }
}

impl Buckets {
    /// Returns the head of the list for a hash.
    fn bucket(self, hash: u64) -> NonNull<*mut Entry> {
        let at = hash as usize & (self.buckets - 1);
        // SAFETY: `at` is below the number of buckets, which follow the table in the same block.
        unsafe { self.table.add(1).cast::<*mut Entry>().add(at) }
    }
}

fn table_bytes(buckets: usize) -> usize {
    size_of::<Table>() + buckets * size_of::<*mut Entry>()
}

/// FNV-1a, 64 bits.
fn hash_of(name: &[u8]) -> u64 {
    name.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
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

/// Returns the table of an object; `None` while the object has no root.
fn table(view: &impl View) -> Result<Option<Buckets>> {
    let RawRoot { address, tag, description, .. } = view.root()?;
    if address.is_null() {
        return Ok(None);
    }
    if tag != TAG {
        let why = format!("its root is `{description}`, not a table of names");
        return Err(view.error(Code::OtherType, why));
    }
    let damaged = || view.error(Code::Damaged, "its table of names is broken; restore a backup");
    let align = align_of::<Table>();
    let head = view.place(address.addr(), size_of::<Table>(), align).ok_or_else(damaged)?;
    let table = head.cast::<Table>();
    // SAFETY: `place` found the table's head inside the object.
    let Table { names, buckets } = unsafe { table.read() };
    // More buckets do not fit into memory, and a table with more names than buckets would have been
    // doubled.
    let possible = usize::try_from(buckets)
        .ok()
        .filter(|b| b.is_power_of_two() && *b <= 1 << 26 && names <= *b as u64);
    let buckets = possible.ok_or_else(damaged)?;
    view.place(address.addr(), table_bytes(buckets), align).ok_or_else(damaged)?;
    Ok(Some(Buckets { table, names, buckets }))
}

/// Returns an entry that lies in the object, and its name.
fn entry(view: &impl View, address: *mut Entry) -> Option<(Entry, &[u8])> {
    let place = view.place(address.addr(), size_of::<Entry>(), align_of::<Entry>())?;
    // SAFETY: the entry lies in the object, and any bytes are a valid `Entry`.
    let entry = unsafe { place.cast::<Entry>().read() };
    let length = usize::try_from(entry.name_bytes).ok().filter(|n| *n <= NAME_BYTES_MAX)?;
    view.place(address.addr(), size_of::<Entry>() + length, 1)?;
    // SAFETY: the name lies in the object; it is written once, together with its entry.
    let name =
        unsafe { std::slice::from_raw_parts(place.as_ptr().add(size_of::<Entry>()), length) };
    Some((entry, name))
}

/// Finds the entry of a name.
fn find(view: &impl View, name: &[u8]) -> Result<Option<Found>> {
    let Some(table) = table(view)? else { return Ok(None) };
    let hash = hash_of(name);
    let damaged = || view.error(Code::Damaged, "its table of names is broken; restore a backup");
    let mut place = table.bucket(hash);
    for _ in 0..=table.names {
        // SAFETY: `place` is a bucket, or the first field of an entry that lies in the object.
        let Some(address) = NonNull::new(unsafe { place.read() }) else { return Ok(None) };
        let (stored, stored_name) = entry(view, address.as_ptr()).ok_or_else(damaged)?;
        if stored.hash == hash && stored_name == name {
            let size = usize::try_from(stored.size).map_err(|_| damaged())?;
            let block = view.place(stored.block.addr(), size, ALIGNMENT).ok_or_else(damaged)?;
            let block = NonNull::slice_from_raw_parts(block, size);
            return Ok(Some(Found { place, entry: address, next: stored.next, block }));
        }
        place = address.cast();
    }
    Err(damaged())
}

/// Moves all entries of one table into another. On error the old table is unchanged.
fn move_entries(writer: &Writer, old: Buckets, new: Buckets) -> Result<()> {
    let damaged = || writer.error(Code::Damaged, "its table of names is broken; restore a backup");
    let mut entries = Vec::new();
    for bucket in 0..old.buckets as u64 {
        // SAFETY: the bucket lies in the table.
        let mut next = unsafe { old.bucket(bucket).read() };
        while let Some(address) = NonNull::new(next) {
            if entries.len() as u64 >= old.names {
                return Err(damaged());
            }
            let (stored, _) = entry(writer, address.as_ptr()).ok_or_else(damaged)?;
            entries.push((address, stored.hash));
            next = stored.next;
        }
    }
    for (address, hash) in entries {
        let place = new.bucket(hash);
        // SAFETY: the entry lies in the object and the bucket in the new table's block. The caller
        // borrows the heap exclusively.
        unsafe {
            (&raw mut (*address.as_ptr()).next).write(place.read());
            place.write(address.as_ptr());
        }
    }
    Ok(())
}
