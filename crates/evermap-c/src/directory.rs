//! Table of names that is the root of an `nvheap.h` heap, in the format that the header documents:
//! a hash table of entry lists, doubled when it has fewer lists than entries. Everything lies in
//! the object, so a commit covers it like the named blocks.
//!
//! Raw memory: callers hold the heap's lock, so no other thread accesses the table.

use std::mem::offset_of;
use std::ptr::{self, NonNull};

use evermap_core::Heap;

use crate::failure::{Failure, Result};
use crate::object::Object;
use crate::status;

/// Tag of the root.
pub const TAG: [u8; 16] = *b"evermap.nvheap.1";
const DESCRIPTION: &str = "table of names of an nvheap";
const BUCKETS_FIRST: u64 = 64;
const ALIGNMENT: usize = 16;

#[repr(C)]
pub struct Table {
    names: u64,
    buckets: u64,
    // `buckets` pointers to entries follow.
}

#[repr(C)]
pub struct Entry {
    next: *mut Entry,
    pub block: *mut u8,
    pub size: u64,
    hash: u64,
    name_bytes: u64,
    // The name and a zero byte follow.
}

const _: () = assert!(size_of::<Table>() == 16 && offset_of!(Entry, name_bytes) == 32);

/// FNV-1a, 64 bits.
fn hash_of(name: &[u8]) -> u64 {
    name.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn table_bytes(buckets: u64) -> usize {
    size_of::<Table>() + buckets as usize * size_of::<*mut Entry>()
}

/// Returns the table of a heap, or `None` while it has no names.
///
/// # Errors
/// `SCHEMA_MISMATCH` when the object's root is not such a table.
pub fn table(object: &Object) -> Result<Option<NonNull<Table>>> {
    let root = object.root()?;
    if root.address != 0 && root.tag != TAG {
        let message =
            format!("object `{}` is not a heap of nvheap.h: it has another root", object.name());
        return Err(Failure::new(status::SCHEMA_MISMATCH, message));
    }
    Ok(NonNull::new(root.address as *mut Table))
}

/// Returns the head of the list for a hash.
///
/// # Safety
/// `table` is the table of an open heap, and the caller holds its lock.
unsafe fn bucket(table: NonNull<Table>, hash: u64) -> *mut *mut Entry {
    // SAFETY: the caller guarantees the table of an open heap; `buckets` pointers follow it.
    unsafe {
        let first = table.as_ptr().add(1).cast::<*mut Entry>();
        first.add((hash % (*table.as_ptr()).buckets) as usize)
    }
}

/// Returns the pointer that leads to the entry of a name. It holds null if the name does not exist.
///
/// # Safety
/// `table` is the table of an open heap, and the caller holds its lock.
unsafe fn find_place(table: NonNull<Table>, name: &[u8]) -> *mut *mut Entry {
    let hash = hash_of(name);
    // SAFETY: entries and their names are complete: they come from a commit, or were written under
    // the lock.
    unsafe {
        let mut place = bucket(table, hash);
        while let Some(entry) = (*place).as_mut() {
            let stored = (&raw mut *entry).add(1).cast::<u8>();
            if entry.hash == hash
                && std::slice::from_raw_parts(stored, entry.name_bytes as usize) == name
            {
                break;
            }
            place = &raw mut entry.next;
        }
        place
    }
}

/// Returns the entry of a name.
///
/// # Safety
/// The caller holds the heap's lock while it uses the result.
pub unsafe fn find(object: &Object, name: &[u8]) -> Result<Option<NonNull<Entry>>> {
    let Some(table) = table(object)? else { return Ok(None) };
    // SAFETY: the caller holds the lock; the pointer is in the table or in an entry.
    Ok(NonNull::new(unsafe { *find_place(table, name) }))
}

/// Names a block. The name must not be in the table.
///
/// # Safety
/// The caller holds the heap's lock.
pub unsafe fn insert(object: &Object, name: &[u8], block: *mut u8, size: u64) -> Result<()> {
    let heap = object.heap()?;
    // SAFETY: the caller holds the lock.
    let table = unsafe { table_with_room(object, heap) }?;
    let made = heap.allocate(size_of::<Entry>() + name.len() + 1, ALIGNMENT)?.cast::<Entry>();
    let hash = hash_of(name);
    // SAFETY: the entry's block has room for the entry and the name, and is not in a list yet.
    unsafe {
        let place = bucket(table, hash);
        let name_bytes = name.len() as u64;
        made.write(Entry { next: *place, block, size, hash, name_bytes });
        let text = made.as_ptr().add(1).cast::<u8>();
        text.copy_from_nonoverlapping(name.as_ptr(), name.len());
        text.add(name.len()).write(0);
        *place = made.as_ptr();
        (*table.as_ptr()).names += 1;
    }
    Ok(())
}

/// Removes a name. Returns its block, which is not freed.
///
/// # Safety
/// The caller holds the heap's lock.
pub unsafe fn remove(object: &Object, name: &[u8]) -> Result<Option<*mut u8>> {
    let heap = object.heap()?;
    let Some(table) = table(object)? else { return Ok(None) };
    // SAFETY: the caller holds the lock; the entry is unlinked before it is freed.
    unsafe {
        let place = find_place(table, name);
        let Some(entry) = NonNull::new(*place) else { return Ok(None) };
        let block = entry.as_ref().block;
        *place = entry.as_ref().next;
        (*table.as_ptr()).names -= 1;
        heap.try_free(entry.cast())?;
        Ok(Some(block))
    }
}

/// Returns the table, created or enlarged if needed.
///
/// # Safety
/// The caller holds the heap's lock.
unsafe fn table_with_room(object: &Object, heap: &Heap) -> Result<NonNull<Table>> {
    let old = table(object)?;
    // SAFETY: the table is the heap's root, and the caller holds the lock.
    let (names, had) =
        old.map_or((0, 0), |old| unsafe { (old.as_ref().names, old.as_ref().buckets) });
    if let Some(old) = old.filter(|_| names < had) {
        return Ok(old);
    }
    let buckets = (had * 2).max(BUCKETS_FIRST);
    let bytes = table_bytes(buckets);
    let new = heap.allocate_zeroed(bytes, ALIGNMENT)?.cast::<Table>();
    // SAFETY: the new table has room for its head and `buckets` pointers, all null; every entry of
    // the old table is moved once.
    unsafe {
        new.write(Table { names, buckets });
        for index in 0..had {
            let mut next = *bucket(old.unwrap_or(new), index);
            while let Some(entry) = next.as_mut() {
                next = std::mem::replace(&mut entry.next, ptr::null_mut());
                let place = bucket(new, entry.hash);
                entry.next = *place;
                *place = entry;
            }
        }
    }
    // SAFETY: the tag does not belong to a Rust type.
    unsafe { object.set_root(new.as_ptr() as usize, bytes as u64, TAG, DESCRIPTION) }?;
    if let Some(old) = old {
        // SAFETY: nothing points to the old table any more.
        unsafe { heap.try_free(old.cast()) }?;
    }
    Ok(new)
}
