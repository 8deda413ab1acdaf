//! Editing a map through its cursor, and building one.
//!
//! The order of steps keeps the map valid wherever user code runs: a key or value is built before
//! it counts, a removed entry is unlinked before it is released, and steps that can fail come
//! before any change.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::slice;

#[cfg(feature = "serde")]
use super::build::Staged;
use super::build::{ReleaseOnDrop, build_at};
use super::map::{IterMut, ValuesMut};
use super::pmap::{BITS_MAX, BITS_MIN, EMPTY, Entry, Found, REMOVED, cell, limit};
use super::{
    Build, Built, FromIter, KeySource, Mut, PMap, Persist, PersistHash, Slot, release_value,
};
use crate::Error;

/// Below this many entries, removed ones are not worth compacting away.
const COMPACT_MIN: u32 = 16;

impl<'a, K: Persist, V: Persist> Mut<'a, PMap<K, V>> {
    /// Sets the value of a key: replaces the value of an existing key, or appends an entry.
    ///
    /// The key is looked up before it is built, so an existing key costs no allocation.
    ///
    /// # Errors
    ///
    /// Returns an error when the object can't grow, or the map has its maximum size. The map's
    /// contents are unchanged then.
    ///
    /// ```
    /// use evermap::{PMap, PString, Scratch};
    ///
    /// let mut object = Scratch::<PMap<PString, PString>>::new([("name", "a")])?;
    /// object.root_mut().insert("name", "b")?;
    /// assert_eq!(object.root().get("name").map(|name| name.as_str()), Some("b"));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn insert<S, U>(&mut self, key: S, value: U) -> Result<Mut<'_, V>, Error>
    where
        S: KeySource<K, Query: PersistHash + Eq>,
        K: Build<S> + Borrow<S::Query>,
        V: Build<U>,
    {
        let (hash, found) = self.search(key.query())?;
        let position = match found {
            Some(position) => {
                self.value_at(position).assign(value)?;
                position
            }
            None => self.append(hash, key, value)?,
        };
        Ok(self.value_at(position))
    }

    /// Returns the value of a key. Inserts the value returned by `make` if the key does not exist.
    ///
    /// # Errors
    ///
    /// Same errors as [`insert`](Mut::insert).
    ///
    /// ```
    /// use evermap::{PMap, PString, Scratch};
    ///
    /// let mut object = Scratch::<PMap<PString, u64>>::new([("a", 1)])?;
    /// for word in ["a", "b", "a"] {
    ///     *object.root_mut().get_or_insert_with(word, || 0)? += 1;
    /// }
    /// assert_eq!(object.root().get("a"), Some(&3));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn get_or_insert_with<S, U>(
        &mut self,
        key: S,
        make: impl FnOnce() -> U,
    ) -> Result<Mut<'_, V>, Error>
    where
        S: KeySource<K, Query: PersistHash + Eq>,
        K: Build<S> + Borrow<S::Query>,
        V: Build<U>,
    {
        let (hash, found) = self.search(key.query())?;
        let position = match found {
            Some(position) => position,
            None => self.append(hash, key, make())?,
        };
        Ok(self.value_at(position))
    }

    /// Inserts each pair of sources.
    ///
    /// # Errors
    ///
    /// Same errors as [`insert`](Mut::insert). The pairs before the failing one stay.
    ///
    /// ```
    /// use evermap::{PMap, Scratch};
    ///
    /// let mut object = Scratch::<PMap<u64, u64>>::new([(1, 10)])?;
    /// object.root_mut().extend((2..4).map(|key| (key, key * 10)))?;
    /// assert_eq!(object.root().len(), 3);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn extend<S, U>(&mut self, pairs: impl IntoIterator<Item = (S, U)>) -> Result<(), Error>
    where
        S: KeySource<K, Query: PersistHash + Eq>,
        K: Build<S> + Borrow<S::Query>,
        V: Build<U>,
    {
        for (key, value) in pairs {
            self.insert(key, value)?;
        }
        Ok(())
    }

    /// Returns a cursor to the value of a key.
    ///
    /// ```
    /// use evermap::{PMap, PString, Scratch};
    ///
    /// let mut object = Scratch::<PMap<PString, PString>>::new([("name", "a")])?;
    /// if let Some(mut name) = object.root_mut().get_mut("name") {
    ///     name.push_str("b")?;
    /// }
    /// assert_eq!(object.root().get("name").map(|name| name.as_str()), Some("ab"));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn get_mut<Q>(&mut self, key: &Q) -> Option<Mut<'_, V>>
    where
        K: Borrow<Q>,
        Q: PersistHash + Eq + ?Sized,
    {
        self.reborrow().into_get_mut(key)
    }

    /// Like [`get_mut`](Mut::get_mut), with the full lifetime of this cursor.
    pub fn into_get_mut<Q>(self, key: &Q) -> Option<Mut<'a, V>>
    where
        K: Borrow<Q>,
        Q: PersistHash + Eq + ?Sized,
    {
        let found = self.find(self.hash_of(key), key)?;
        // SAFETY: a live entry's value is valid, and exclusive access to the map, for `'a`, is
        // exclusive access to it.
        Some(unsafe { Mut::from_raw(self.heap, self.value_place(found.position)) })
    }

    /// Removes and releases the entry of a key. The order of the rest is kept. Returns true if
    /// there was an entry. For `Copy` values, [`take`](Mut::take) returns the value.
    ///
    /// ```
    /// use evermap::{PMap, PString, Scratch};
    ///
    /// let mut object = Scratch::<PMap<PString, u64>>::new([("a", 1), ("b", 2), ("c", 3)])?;
    /// assert!(object.root_mut().remove("b"));
    /// assert!(object.root().values().eq(&[1, 3]));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn remove<Q>(&mut self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: PersistHash + Eq + ?Sized,
    {
        let removed = self.remove_in_place(key);
        if removed {
            self.compact_if_sparse();
        }
        removed
    }

    /// Like [`remove`](Mut::remove), but does not move the other entries, which keeps the commit
    /// small. The next insertion that finds the map full closes the gaps.
    pub(crate) fn remove_in_place<Q>(&mut self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: PersistHash + Eq + ?Sized,
    {
        let Some(found) = self.find(self.hash_of(key), key) else {
            return false;
        };
        self.unlink(found);
        true
    }

    /// Removes the entry of a key and returns its value.
    ///
    /// ```
    /// use evermap::{PMap, PString, Scratch};
    ///
    /// let mut object = Scratch::<PMap<PString, u64>>::new([("a", 1)])?;
    /// assert_eq!(object.root_mut().take("a"), Some(1));
    /// assert_eq!(object.root_mut().take("a"), None);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn take<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: PersistHash + Eq + ?Sized,
        V: Copy,
    {
        let value = *self.get(key)?;
        self.remove(key);
        Some(value)
    }

    /// Keeps the entries for which `keep` returns true, in order, and releases the others.
    ///
    /// ```
    /// use evermap::{PMap, Scratch};
    ///
    /// let mut object = Scratch::<PMap<u64, u64>>::new([(1, 10), (2, 20), (3, 30)])?;
    /// object.root_mut().retain(|key, _| key % 2 == 1);
    /// assert!(object.root().keys().eq(&[1, 3]));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn retain(&mut self, mut keep: impl FnMut(&K, Mut<'_, V>) -> bool) {
        for position in 0..self.used as usize {
            if self.entry_slice()[position].hash == 0 {
                continue;
            }
            // SAFETY: a live entry; its key is lent for reading, its value for writing.
            let kept = unsafe {
                let key = self.key_place(position).as_ref();
                keep(key, Mut::from_raw(self.heap, self.value_place(position)))
            };
            if !kept {
                let cell = self.cell_of(position);
                self.unlink(Found { cell, position });
            }
        }
        self.compact_if_sparse();
    }

    /// Releases all entries. The capacity is kept.
    ///
    /// ```
    /// use evermap::{PMap, Scratch};
    ///
    /// let mut object = Scratch::<PMap<u64, u64>>::new([(1, 10)])?;
    /// object.root_mut().clear();
    /// assert!(object.root().is_empty());
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn clear(&mut self) {
        if self.used == 0 {
            return;
        }
        let heap = self.heap;
        let used = self.used as usize;
        let entries = self.entries;
        self.cells_mut().fill(EMPTY);
        let map = self.raw();
        (map.used, map.live) = (0, 0);
        for position in 0..used {
            // SAFETY: these were the map's entries until now, and have no user any more.
            unsafe { release_entry(heap, &mut *entries.add(position)) };
        }
    }

    /// Makes room for `additional` more entries.
    ///
    /// # Errors
    ///
    /// Same errors as [`insert`](Mut::insert).
    ///
    /// ```
    /// use evermap::{PMap, Scratch};
    ///
    /// let mut object = Scratch::<PMap<u64, u64>>::new([(1, 10)])?;
    /// object.root_mut().reserve(1000)?;
    /// assert!(object.root().capacity() >= 1001);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn reserve(&mut self, additional: usize) -> Result<(), Error> {
        let needed = self.used as usize + additional.min(limit(BITS_MAX) + 1);
        if needed <= limit(self.bits) {
            return Ok(());
        }
        let bits = (BITS_MIN..=BITS_MAX).find(|bits| limit(*bits) >= needed).ok_or(OVERFLOW)?;
        self.resize_blocks(bits)
    }

    /// Returns each key with a cursor to its value, in the order of insertion.
    ///
    /// ```
    /// use evermap::{PMap, Scratch};
    ///
    /// let mut object = Scratch::<PMap<u64, u64>>::new([(1, 10), (2, 20)])?;
    /// for (key, mut value) in object.root_mut().iter_mut() {
    ///     *value += key;
    /// }
    /// assert!(object.root().values().eq(&[11, 22]));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn iter_mut(&mut self) -> IterMut<'_, K, V> {
        self.reborrow().into_iter()
    }

    /// Returns cursors to the values, in the order of insertion.
    ///
    /// ```
    /// use evermap::{PMap, Scratch};
    ///
    /// let mut object = Scratch::<PMap<u64, u64>>::new([(1, 10), (2, 20)])?;
    /// for mut value in object.root_mut().values_mut() {
    ///     *value += 1;
    /// }
    /// assert!(object.root().values().eq(&[11, 21]));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn values_mut(&mut self) -> ValuesMut<'_, K, V> {
        ValuesMut(self.iter_mut())
    }

    /// Returns the hash of a key in this map, and the position of its entry. Gives an empty map its
    /// seed.
    fn search<Q>(&mut self, key: &Q) -> Result<(u64, Option<usize>), Error>
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
    fn append<S, U>(&mut self, hash: u64, key: S, value: U) -> Result<usize, Error>
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
    pub(super) fn insert_staged(
        &mut self,
        key: Staged<'_, K>,
        value: Staged<'_, V>,
    ) -> Result<(), Error>
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
    fn count(&mut self, hash: u64, position: usize) {
        // SAFETY: a place in the map's block.
        unsafe { (*self.entries.add(position)).hash = hash };
        self.index(hash, position);
        let map = self.raw();
        map.used += 1;
        map.live += 1;
    }

    /// Ensures that one more entry fits: compacts if that frees enough, else grows.
    fn make_room(&mut self) -> Result<(), Error> {
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
    fn resize_blocks(&mut self, bits: u32) -> Result<(), Error> {
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

    fn compact_if_sparse(&mut self) {
        // Compacting clears the whole index: worth it only for a map that uses a good part of it.
        let worth_it = self.used >= COMPACT_MIN && self.used as usize >= limit(self.bits) / 4;
        if worth_it && self.live < self.used / 2 {
            self.compact();
        }
    }

    /// Closes the gaps of removed entries. Allocates nothing, so it can't fail.
    fn compact(&mut self) {
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
    fn index_all(&mut self) {
        for position in 0..self.used as usize {
            let hash = self.entry_slice()[position].hash;
            if hash != 0 {
                self.index(hash, position);
            }
        }
    }

    fn index(&mut self, hash: u64, position: usize) {
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
    fn cell_of(&mut self, position: usize) -> usize {
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
    fn unlink(&mut self, found: Found) {
        let heap = self.heap;
        self.cells_mut()[found.cell] = REMOVED;
        self.raw().live -= 1;
        // SAFETY: a live entry, unlinked in the lines above.
        unsafe { release_entry(heap, &mut self.entries_mut()[found.position]) };
    }

    fn value_at(&mut self, position: usize) -> Mut<'_, V> {
        // SAFETY: a live entry's value is valid.
        unsafe { Mut::from_raw(self.heap, self.value_place(position)) }
    }

    /// Returns the entries, for the methods of this file, which must not pass them on.
    fn entries_mut(&mut self) -> &mut [Entry<K, V>] {
        let map = self.raw();
        let first = NonNull::new(map.entries).unwrap_or(NonNull::dangling());
        // SAFETY: exclusive access to the map is exclusive access to its `used` entries.
        unsafe { slice::from_raw_parts_mut(first.as_ptr(), map.used as usize) }
    }

    /// Returns the cells. The map must have blocks.
    fn cells_mut(&mut self) -> &mut [u32] {
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
unsafe fn release_entry<K: Persist, V: Persist>(
    heap: &crate::alloc::Heap,
    entry: &mut Entry<K, V>,
) {
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

impl<K: Persist, V: Persist> Build<PMap<K, V>> for PMap<K, V> {
    fn build<'a>(source: PMap<K, V>, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, Error> {
        Ok(slot.write(source))
    }
}

impl<K, V, S, U, I> Build<FromIter<I>> for PMap<K, V>
where
    I: Iterator<Item = (S, U)>,
    S: KeySource<K, Query: PersistHash + Eq>,
    K: Build<S> + Borrow<S::Query>,
    V: Build<U>,
{
    fn build<'a>(source: FromIter<I>, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, Error> {
        slot.write_with(PMap::new(), |mut map| map.extend(source.0))
    }
}

macro_rules! from_pairs {
    ($([$($generics:tt)*] $source:ty),*) => {$(
        impl<K, V, S, U, $($generics)*> Build<$source> for PMap<K, V>
        where
            S: KeySource<K, Query: PersistHash + Eq>,
            K: Build<S> + Borrow<S::Query>,
            V: Build<U>,
        {
            fn build<'a>(source: $source, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, Error> {
                slot.write_with(PMap::new(), |mut map| {
                    map.reserve(source.len())?;
                    map.extend(source)
                })
            }
        }
    )*};
}

from_pairs!([const N: usize] [(S, U); N], [] Vec<(S, U)>, [H] HashMap<S, U, H>, [] BTreeMap<S, U>);

const OVERFLOW: Error = Error::CapacityOverflow { what: "PMap" };
