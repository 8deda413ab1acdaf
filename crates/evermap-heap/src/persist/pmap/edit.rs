//! Editing a map through its cursor, and building one.
//!
//! The order of steps keeps the map valid wherever user code runs: a key or value is built before
//! it counts, a removed entry is unlinked before it is released, and steps that can fail come
//! before any change.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};

use super::blocks::{OVERFLOW, release_entry};
use super::iter::{IterMut, ValuesMut};
use super::{BITS_MAX, BITS_MIN, EMPTY, Found, limit};
use crate::HeapError;
use crate::persist::{Build, Built, FromIter, KeySource, Mut, PMap, Persist, PersistHash, Slot};

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
    pub fn insert<S, U>(&mut self, key: S, value: U) -> Result<Mut<'_, V>, HeapError>
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
    ) -> Result<Mut<'_, V>, HeapError>
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
    pub fn extend<S, U>(&mut self, pairs: impl IntoIterator<Item = (S, U)>) -> Result<(), HeapError>
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
    #[doc(hidden)]
    pub fn remove_in_place<Q>(&mut self, key: &Q) -> bool
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
    pub fn reserve(&mut self, additional: usize) -> Result<(), HeapError> {
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
}

impl<K: Persist, V: Persist> Build<PMap<K, V>> for PMap<K, V> {
    fn build<'a>(source: PMap<K, V>, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
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
    fn build<'a>(source: FromIter<I>, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
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
            fn build<'a>(source: $source, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
                slot.write_with(PMap::new(), |mut map| {
                    map.reserve(source.len())?;
                    map.extend(source)
                })
            }
        }
    )*};
}

from_pairs!([const N: usize] [(S, U); N], [] Vec<(S, U)>, [H] HashMap<S, U, H>, [] BTreeMap<S, U>);
