//! The entries and the index behind a map's cursor: appending, growing, compacting, unlinking.
//!
//! Steps that can fail come before any change, and an entry counts only once both of its parts are
//! built.

use std::borrow::Borrow;
use std::hash::{BuildHasher, RandomState};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::slice;

use super::{BITS_MAX, BITS_MIN, EMPTY, Entry, Found, PMap, REMOVED, cell, limit};
use crate::HeapError;
use crate::alloc::Heap;
#[cfg(feature = "serde")]
use crate::persist::build::Staged;
use crate::persist::build::{ReleaseOnDrop, build_at};
use crate::persist::{Build, Mut, Persist, PersistHash, release_value};

pub(super) const OVERFLOW: HeapError = HeapError::CapacityOverflow { what: "PMap" };

/// Below this many entries, removed ones are not worth compacting away.
const COMPACT_MIN: u32 = 16;

impl<K: Persist, V: Persist> Mut<'_, PMap<K, V>> {
    /// Returns the hash of a key in this map, and the position of its entry. Gives an empty map its
    /// seed.
    pub(super) fn search<Q>(&mut self, key: &Q) -> Result<(u64, Option<usize>), HeapError>
    where
        K: Borrow<Q>,
        Q: PersistHash + Eq + ?Sized,
    {
        if self.bits == 0 {
            self.resize_blocks(BITS_MIN)?;
        }
        let hash = self.hash_of(key);
        Ok((hash, self.find(hash, key).map(|found| found.position)))
    }

    /// Appends an entry for a key that does not exist.
    pub(super) fn append<S, U>(&mut self, hash: u64, key: S, value: U) -> Result<usize, HeapError>
    where
        K: Build<S>,
        V: Build<U>,
    {
        self.make_room()?;
        let heap = self.heap;
        let position = self.used as usize;
        // SAFETY: `make_room` left a free place after the last entry. It counts once both parts are
        // built; until then the guard releases the key if building the value fails.
        unsafe {
            let entry = self.entries.add(position);
            let key_place = NonNull::new_unchecked(&raw mut (*entry).key).cast();
            build_at::<K, S>(heap, key_place, key)?;
            let guard = ReleaseOnDrop::new(heap, key_place);
            let value_place = NonNull::new_unchecked(&raw mut (*entry).value).cast();
            build_at::<V, U>(heap, value_place, value)?;
            guard.keep();
        }
        self.count(hash, position);
        Ok(position)
    }

    /// Sets the value of a key that was already built, like [`insert`](Mut::insert).
    #[cfg(feature = "serde")]
    pub(in crate::persist) fn insert_staged(
        &mut self,
        key: Staged<'_, K>,
        value: Staged<'_, V>,
    ) -> Result<(), HeapError>
    where
        K: PersistHash + Eq,
    {
        let (hash, found) = self.search(&*key)?;
        if let Some(position) = found {
            // SAFETY: a value of this object, which is moved in.
            unsafe { self.value_at(position).replace_from(&value.take()) };
            return Ok(());
        }
        self.make_room()?;
        let position = self.used as usize;
        // SAFETY: `make_room` left a free place after the last entry.
        unsafe {
            let entry = self.entries.add(position);
            (&raw mut (*entry).key).write(key.take());
            (&raw mut (*entry).value).write(value.take());
        }
        self.count(hash, position);
        Ok(())
    }

    /// Adds the built entry after the last one to the map.
    pub(super) fn count(&mut self, hash: u64, position: usize) {
        // SAFETY: a place in the map's block.
        unsafe { (*self.entries.add(position)).hash = hash };
        self.index(hash, position);
        let map = self.raw();
        map.used += 1;
        map.live += 1;
    }

    /// Ensures that one more entry fits: compacts if that frees enough, else grows.
    pub(super) fn make_room(&mut self) -> Result<(), HeapError> {
        if (self.used as usize) < limit(self.bits) {
            return Ok(());
        }
        // Half: so at least half the capacity is inserted between two compactions.
        if self.live <= self.used / 2 {
            self.compact();
            return Ok(());
        }
        if self.bits >= BITS_MAX {
            return Err(OVERFLOW);
        }
        self.resize_blocks((self.bits + 1).max(BITS_MIN))
    }

    /// Moves the map into larger blocks.
    #[cold]
    pub(super) fn resize_blocks(&mut self, bits: u32) -> Result<(), HeapError> {
        let heap = self.heap;
        let size = limit(bits)
            .checked_mul(size_of::<Entry<K, V>>())
            .filter(|size| *size <= isize::MAX as usize)
            .ok_or(OVERFLOW)?;
        let align = align_of::<Entry<K, V>>();
        // An entry has eight bytes or more, so the cells take less, even with 32-bit addresses.
        let cells = heap.allocate_zeroed(size_of::<u32>() << bits, align_of::<u32>())?;
        let entries = match NonNull::new(self.entries) {
            None => heap.allocate(size, align),
            // SAFETY: the map's own block.
            Some(entries) => unsafe { heap.reallocate(entries.cast(), size, align) },
        };
        let entries = entries.inspect_err(|_| {
            // SAFETY: allocated above, and not used.
            unsafe { heap.free(cells) }
        })?;
        let map = self.raw();
        if map.bits == 0 {
            map.seed = RandomState::new().hash_one(0_u64);
        }
        map.entries = entries.as_ptr().cast();
        map.bits = bits;
        let old = std::mem::replace(&mut map.cells, cells.as_ptr().cast());
        if let Some(old) = NonNull::new(old) {
            // SAFETY: the map's own block, replaced in the line above.
            unsafe { heap.free(old.cast()) };
        }
        self.index_all();
        Ok(())
    }

    pub(super) fn compact_if_sparse(&mut self) {
        // Compacting clears the whole index: worth it only for a map that uses a good part of it.
        let worth_it = self.used >= COMPACT_MIN && self.used as usize >= limit(self.bits) / 4;
        if worth_it && self.live < self.used / 2 {
            self.compact();
        }
    }

    /// Closes the gaps of removed entries. Allocates nothing, so it can't fail.
    pub(super) fn compact(&mut self) {
        let entries = self.entries;
        let mut kept = 0;
        for position in 0..self.used as usize {
            // SAFETY: both are places in the map's block; the bytes of a removed entry are invalid,
            // so overwriting them loses nothing.
            unsafe {
                if (*entries.add(position)).hash != 0 {
                    entries.add(kept).copy_from(entries.add(position), 1);
                    kept += 1;
                }
            }
        }
        self.raw().used = kept as u32;
        self.cells_mut().fill(EMPTY);
        self.index_all();
    }

    /// Adds all live entries to an index of empty cells.
    pub(super) fn index_all(&mut self) {
        for position in 0..self.used as usize {
            let hash = self.entry_slice()[position].hash;
            if hash != 0 {
                self.index(hash, position);
            }
        }
    }

    pub(super) fn index(&mut self, hash: u64, position: usize) {
        let bits = self.bits;
        let cells = self.cells_mut();
        let mask = cells.len() - 1;
        let mut place = hash as usize & mask;
        // Removed cells are not reused before the next compaction: the invariant that an empty cell
        // is left counts every written entry once.
        while cells[place] != EMPTY {
            place = (place + 1) & mask;
        }
        cells[place] = cell(bits, hash, position);
    }

    /// Returns the cell of a live entry.
    pub(super) fn cell_of(&mut self, position: usize) -> usize {
        let (bits, hash) = (self.bits, self.entry_slice()[position].hash);
        let wanted = cell(bits, hash, position);
        let cells = self.cells_mut();
        let mask = cells.len() - 1;
        let mut place = hash as usize & mask;
        while cells[place] != wanted {
            place = (place + 1) & mask;
        }
        place
    }

    /// Unlinks an entry and releases it.
    pub(super) fn unlink(&mut self, found: Found) {
        let heap = self.heap;
        self.cells_mut()[found.cell] = REMOVED;
        self.raw().live -= 1;
        // SAFETY: a live entry, unlinked in the lines above.
        unsafe { release_entry(heap, &mut self.entries_mut()[found.position]) };
    }

    pub(super) fn value_at(&mut self, position: usize) -> Mut<'_, V> {
        // SAFETY: a live entry's value is valid.
        unsafe { Mut::from_raw(self.heap, self.value_place(position)) }
    }

    /// Returns the entries, for the methods of this file, which must not pass them on.
    pub(super) fn entries_mut(&mut self) -> &mut [Entry<K, V>] {
        let map = self.raw();
        let first = NonNull::new(map.entries).unwrap_or(NonNull::dangling());
        // SAFETY: exclusive access to the map is exclusive access to its `used` entries.
        unsafe { slice::from_raw_parts_mut(first.as_ptr(), map.used as usize) }
    }

    /// Returns the cells. The map must have blocks.
    pub(super) fn cells_mut(&mut self) -> &mut [u32] {
        let map = self.raw();
        // SAFETY: exclusive access to the map is exclusive access to its `2^bits` cells.
        unsafe { slice::from_raw_parts_mut(map.cells, 1 << map.bits) }
    }
}

/// Releases an entry's key and value, if it has them, and marks it removed.
///
/// # Safety
///
/// No cell leads to the entry, and nothing else uses it.
pub(super) unsafe fn release_entry<K: Persist, V: Persist>(heap: &Heap, entry: &mut Entry<K, V>) {
    if entry.hash == 0 {
        return;
    }
    entry.hash = 0;
    let key: NonNull<MaybeUninit<K>> = NonNull::from(&mut entry.key);
    let value: NonNull<MaybeUninit<V>> = NonNull::from(&mut entry.value);
    // SAFETY: valid, because the hash wasn't 0, and out of reach from here on, because it is.
    unsafe {
        release_value::<K>(heap, key.cast());
        release_value::<V>(heap, value.cast());
    }
}
