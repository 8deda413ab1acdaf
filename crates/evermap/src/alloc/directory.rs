//! From an address to the descriptor of the slab around it, without a lock.
//!
//! Descriptors are made 32 at a time, for 2 MiB of addresses, when the first slab in there is met;
//! a hash table leads to them. Tables are replaced when half full and, like the descriptors, kept
//! until the heap is dropped, so a reader never holds anything that goes away.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::slab::{Plain, Slab};
use crate::format::CHUNK_BYTES;

/// Chunks whose descriptors are made at a time: 4 KiB of them.
const GRANULE_CHUNKS: u64 = 32;
const GRANULE_BYTES: u64 = GRANULE_CHUNKS * CHUNK_BYTES;
/// Entries of the first table.
const ENTRIES_MIN: usize = 8;

/// One granule's descriptors. No object lies at granule zero, so key zero means unused.
#[derive(Debug, Default)]
struct Entry {
    key: AtomicU64,
    slabs: AtomicPtr<Slab>,
}

/// A power of two of entries, at most half of them used.
#[derive(Debug)]
struct Table {
    entries: Box<[Entry]>,
}

#[derive(Debug)]
pub(super) struct Directory {
    table: AtomicPtr<Table>,
    owned: Mutex<Owned>,
}

/// What the directory frees at its end.
#[derive(Debug, Default)]
struct Owned {
    tables: Vec<*mut Table>,
    granules: Vec<*mut [Slab]>,
}

// SAFETY: the pointers are to memory of the directory's own, of types that threads may share.
unsafe impl Send for Owned {}

impl Default for Directory {
    fn default() -> Self {
        let table = Table::new(ENTRIES_MIN);
        let owned = Owned { tables: vec![table], granules: Vec::new() };
        Directory { table: AtomicPtr::new(table), owned: Mutex::new(owned) }
    }
}

impl Table {
    fn new(entries: usize) -> *mut Table {
        let entries = (0..entries).map(|_| Entry::default()).collect();
        Box::into_raw(Box::new(Table { entries }))
    }

    /// The entry of a granule, or the unused one where it would be.
    #[inline(always)]
    fn entry(&self, key: u64) -> &Entry {
        let mask = self.entries.len() - 1;
        let first = &self.entries[key as usize & mask];
        match first.key.load(Ordering::Acquire) == key {
            true => first,
            false => self.entry_further(key),
        }
    }

    #[inline(never)]
    fn entry_further(&self, key: u64) -> &Entry {
        let mask = self.entries.len() - 1;
        let mut at = key as usize & mask;
        loop {
            let entry = &self.entries[at];
            let found = entry.key.load(Ordering::Acquire);
            if found == key || found == 0 {
                return entry;
            }
            at = (at + 1) & mask;
        }
    }

    fn insert(&self, key: u64, slabs: *const Slab) {
        let entry = self.entry(key);
        entry.slabs.set(slabs);
        // Who sees the key sees the rest.
        entry.key.store(key, Ordering::Release);
    }
}

impl Directory {
    fn table(&self) -> &Table {
        // SAFETY: made by `Table::new` and kept until `self` is dropped.
        unsafe { &*self.table.load(Ordering::Acquire) }
    }

    /// The descriptor of the chunk around `address`, if the granule has any.
    #[inline(always)]
    pub(super) fn find(&self, address: u64) -> Option<&Slab> {
        let slabs = self.table().entry(address / GRANULE_BYTES).slabs.get();
        if slabs.is_null() {
            return None;
        }
        let chunk = address / CHUNK_BYTES % GRANULE_CHUNKS;
        // SAFETY: a granule has this many descriptors, kept until `self` is dropped.
        Some(unsafe { &*slabs.add(chunk as usize) })
    }

    /// The descriptor of the chunk around `address`, made if it has to be.
    pub(super) fn find_or_make(&self, address: u64) -> &Slab {
        if let Some(slab) = self.find(address) {
            return slab;
        }
        let mut owned = self.owned.lock().unwrap_or_else(PoisonError::into_inner);
        if self.find(address).is_none() {
            owned.add(self, address / GRANULE_BYTES);
        }
        drop(owned);
        self.find(address).unwrap_or_else(|| unreachable!("the granule was just added"))
    }
}

impl Owned {
    fn add(&mut self, directory: &Directory, key: u64) {
        let granule: Box<[Slab]> = (0..GRANULE_CHUNKS)
            .map(|chunk| {
                let slab = Slab::default();
                slab.address.set(key * GRANULE_BYTES + chunk * CHUNK_BYTES);
                slab
            })
            .collect();
        let granule = Box::into_raw(granule);
        self.granules.push(granule);
        if self.granules.len() * 2 > directory.table().entries.len() {
            let old = directory.table();
            let table = Table::new(old.entries.len() * 2);
            self.tables.push(table);
            for entry in old.entries.iter().filter(|entry| entry.key.get() != 0) {
                // SAFETY: just made.
                unsafe { &*table }.insert(entry.key.get(), entry.slabs.get());
            }
            directory.table.store(table, Ordering::Release);
        }
        directory.table().insert(key, granule.cast::<Slab>());
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: each was made by `Box::into_raw`, and the directory that lent them is gone.
        unsafe {
            self.tables.drain(..).for_each(|table| drop(Box::from_raw(table)));
            self.granules.drain(..).for_each(|granule| drop(Box::from_raw(granule)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_chunk_has_one_descriptor_however_often_the_table_grew() {
        let directory = Directory::default();
        // Two stretches that begin at the same place modulo any table, and lone chunks.
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
            assert_eq!(found.address.get(), *address);
        }
        let mut distinct = made.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), made.len());
    }
}
