//! Finds the descriptor of the slab around an address, without a lock.
//!
//! Descriptors are created 32 at a time, for 2 MiB of addresses, when the first slab in that range
//! is met. A hash table maps a chunk to its descriptor. A table is replaced when it is half full.
//! Old tables and descriptors are kept until the heap is dropped, so a reader's pointers stay
//! valid.
//!
//! Every free goes through the directory. So a table is one piece of memory, and an entry is only a
//! pointer: the descriptor, which is read anyway, tells which chunk it belongs to.

use std::collections::HashMap;
use std::ptr::{from_ref, without_provenance_mut};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use super::slab::{Plain, Slab};
use crate::format::CHUNK_BYTES;

/// Chunks whose descriptors are created together: 4 KiB of descriptors.
const GRANULE_CHUNKS: u64 = 32;
const GRANULE_BYTES: u64 = GRANULE_CHUNKS * CHUNK_BYTES;
/// Entries of the first table.
const ENTRIES_MIN: usize = 64;

/// 2^64 divided by the golden ratio.
const SCATTER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Target of unused entries, so that no reader has to check for null.
static NONE: Slab = Slab::none();

type Entry = AtomicPtr<Slab>;

/// Hash table: a power of two of entries, at most half of them used. The word before the entries is
/// a pointer whose address is the number of entries minus one.
#[derive(Clone, Copy, Debug)]
struct Table(*mut Entry);

#[derive(Debug)]
pub(super) struct Directory {
    table: AtomicPtr<Entry>,
    owned: Mutex<Owned>,
}

/// Memory that the directory frees when it is dropped.
#[derive(Debug, Default)]
struct Owned {
    tables: Vec<Table>,
    /// Descriptors by granule number.
    granules: HashMap<u64, *mut [Slab]>,
    /// Used entries of the newest table.
    used: usize,
}

// SAFETY: the pointers lead to memory that the directory owns, of types that threads may share.
unsafe impl Send for Owned {}

impl Default for Directory {
    fn default() -> Self {
        let table = Table::new(ENTRIES_MIN);
        let owned = Owned { tables: vec![table], granules: HashMap::new(), used: 0 };
        Directory { table: AtomicPtr::new(table.0), owned: Mutex::new(owned) }
    }
}

impl Table {
    fn new(entries: usize) -> Table {
        let head = without_provenance_mut(entries - 1);
        let unused = || from_ref(&NONE).cast_mut();
        let made: Box<[Entry]> = std::iter::once(head)
            .chain(std::iter::repeat_with(unused).take(entries))
            .map(AtomicPtr::new)
            .collect();
        Table(Box::into_raw(made).cast())
    }

    #[inline(always)]
    fn mask(self) -> u64 {
        // SAFETY: tables are kept until the directory is dropped.
        unsafe { (*self.0).get().addr() as u64 }
    }

    #[inline(always)]
    fn entry<'a>(self, at: u64) -> &'a Entry {
        // SAFETY: the table has as many entries as its mask says, after the word that holds the
        // mask; tables are kept until the directory is dropped.
        unsafe { &*self.0.add(1 + (at & self.mask()) as usize) }
    }

    /// Returns the entry that is probed first. Chunks of one region never collide there.
    #[inline(always)]
    fn first<'a>(self, address: u64) -> &'a Entry {
        self.entry(address / CHUNK_BYTES)
    }

    /// Returns the entry of the chunk around an address, or the unused entry where it belongs.
    fn entry_of<'a>(self, address: u64) -> &'a Entry {
        // Chunks of two regions that collide are scattered instead of probed linearly.
        let scattered = (address / CHUNK_BYTES).wrapping_mul(SCATTER) >> 32;
        let further = (0..=self.mask()).map(|n| self.entry(scattered + n));
        let of = |entry: &&Entry| {
            let slab = slab_of(entry);
            is_none(slab) || slab.address.get() == address / CHUNK_BYTES * CHUNK_BYTES
        };
        let first = self.first(address);
        // Half of the entries are unused, so the search ends.
        std::iter::once(first).chain(further).find(of).unwrap_or(first)
    }
}

/// Returns the descriptor that an entry points to.
#[inline(always)]
fn slab_of(entry: &Entry) -> &Slab {
    // SAFETY: an entry always points to a descriptor, which is kept until the directory is dropped.
    unsafe { &*entry.load(Ordering::Acquire) }
}

fn is_none(slab: &Slab) -> bool {
    std::ptr::eq(slab, &NONE)
}

impl Directory {
    #[inline(always)]
    fn table(&self) -> Table {
        Table(self.table.load(Ordering::Acquire))
    }

    /// Returns the most likely descriptor for the chunk around `address`. It may be another
    /// chunk's, or the empty one.
    #[inline(always)]
    pub(super) fn guess(&self, address: u64) -> &Slab {
        slab_of(self.table().first(address))
    }

    /// Returns the descriptor of the chunk around `address`, if it has one.
    pub(super) fn find(&self, address: u64) -> Option<&Slab> {
        Some(slab_of(self.table().entry_of(address))).filter(|slab| !is_none(slab))
    }

    /// Returns the descriptor of the chunk around `address`, and creates it if needed.
    pub(super) fn find_or_make(&self, address: u64) -> &Slab {
        if let Some(slab) = self.find(address) {
            return slab;
        }
        let mut owned = self.owned.lock().unwrap_or_else(PoisonError::into_inner);
        if self.find(address).is_none() {
            owned.add(self, address);
        }
        drop(owned);
        self.find(address).unwrap_or_else(|| unreachable!("the chunk was just added"))
    }
}

impl Owned {
    fn add(&mut self, directory: &Directory, address: u64) {
        let granule = *self.granules.entry(address / GRANULE_BYTES).or_insert_with_key(|key| {
            let slab = |chunk| Slab::at(key * GRANULE_BYTES + chunk * CHUNK_BYTES);
            Box::into_raw((0..GRANULE_CHUNKS).map(slab).collect())
        });
        let old = directory.table();
        let entries = old.mask() as usize + 1;
        self.used += 1;
        if self.used * 2 > entries {
            let table = Table::new(entries * 2);
            self.tables.push(table);
            for at in 0..entries as u64 {
                let slab = slab_of(old.entry(at));
                if !is_none(slab) {
                    table.entry_of(slab.address.get()).set(slab);
                }
            }
            directory.table.store(table.0, Ordering::Release);
        }
        let chunk = address / CHUNK_BYTES % GRANULE_CHUNKS;
        // SAFETY: a granule has that many descriptors.
        let slab = unsafe { granule.cast::<Slab>().add(chunk as usize) };
        // Release: a thread that reads the entry also sees the descriptor's contents.
        directory.table().entry_of(address).store(slab, Ordering::Release);
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        for table in self.tables.drain(..) {
            let entries = table.mask() as usize + 2;
            // SAFETY: `Table::new` allocated this slice; the directory is being dropped, so no
            // borrow is left.
            drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(table.0, entries)) });
        }
        for (_, granule) in self.granules.drain() {
            // SAFETY: the pointer came from `Box::into_raw`; the directory is being dropped, so no
            // borrow is left.
            drop(unsafe { Box::from_raw(granule) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_keeps_its_descriptor_while_the_table_grows() {
        let directory = Directory::default();
        // Two ranges that begin at the same entry of any table, and single chunks.
        let addresses: Vec<u64> = (1..300)
            .map(|n| (1 << 45) + n * CHUNK_BYTES * 7)
            .chain((1..300).map(|n| (1 << 46) + n * CHUNK_BYTES * 7))
            .collect();
        assert!(directory.find(addresses[0]).is_none() && directory.find(16).is_none());
        let made: Vec<*const Slab> =
            addresses.iter().map(|a| std::ptr::from_ref(directory.find_or_make(*a))).collect();
        for (address, slab) in addresses.iter().zip(&made) {
            let found = directory.find(address + 17).unwrap();
            assert!(std::ptr::eq(found, *slab));
        }
        // If two chunks collide, one of them or a scattered chunk is at its first entry.
        let guessed = |a: &&u64| directory.guess(**a).address.get() == **a;
        assert!(addresses.iter().filter(guessed).count() * 3 > addresses.len());
        let mut distinct = made.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), made.len());
    }
}
