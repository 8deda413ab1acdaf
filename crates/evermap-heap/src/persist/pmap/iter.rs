//! Iterators over a [`PMap`]: a walk over its entries that skips removed ones.

use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::ops::Range;
use std::slice;

use super::Entry;
use crate::alloc::Heap;
use crate::persist::pairs::{half, values_mut};
use crate::persist::{Mut, PMap, Persist};

/// Iterator of [`PMap::iter`].
pub struct Iter<'a, K, V> {
    entries: slice::Iter<'a, Entry<K, V>>,
    left: usize,
}

impl<'a, K, V> Iter<'a, K, V> {
    pub(super) fn new(map: &'a PMap<K, V>) -> Self {
        Iter { entries: map.entry_slice().iter(), left: map.len() }
    }
}

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        let pair = self.entries.by_ref().find_map(Entry::pair)?;
        self.left -= 1;
        Some(pair)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<K, V> DoubleEndedIterator for Iter<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let pair = self.entries.by_ref().rev().find_map(Entry::pair)?;
        self.left -= 1;
        Some(pair)
    }
}

impl<K, V> ExactSizeIterator for Iter<'_, K, V> {}
impl<K, V> FusedIterator for Iter<'_, K, V> {}

impl<K, V> Clone for Iter<'_, K, V> {
    fn clone(&self) -> Self {
        Iter { entries: self.entries.clone(), left: self.left }
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Iter<'_, K, V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.clone()).finish()
    }
}

impl<'a, K, V> IntoIterator for &'a PMap<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V>;

    fn into_iter(self) -> Iter<'a, K, V> {
        self.iter()
    }
}

half!(
    /// Iterator of [`PMap::keys`].
    Keys, Iter, K, 0
);
half!(
    /// Iterator of [`PMap::values`].
    Values, Iter, V, 1
);

/// Iterator of `Mut<'_, PMap<K, V>>::iter_mut`: each key with a cursor to its value.
pub struct IterMut<'a, K, V> {
    heap: &'a Heap,
    map: &'a PMap<K, V>,
    positions: Range<usize>,
    left: usize,
    exclusive: PhantomData<&'a mut V>,
}

// SAFETY: the iterator returns `&K` and exclusive access to values; the heap is `Sync`. The map is
// exclusively borrowed during iteration.
unsafe impl<K: Sync, V: Send> Send for IterMut<'_, K, V> {}
// SAFETY: a shared iterator gives no access.
unsafe impl<K: Sync, V: Sync> Sync for IterMut<'_, K, V> {}

impl<'a, K: Persist, V: Persist> IterMut<'a, K, V> {
    fn pair(&mut self, position: usize) -> (&'a K, Mut<'a, V>) {
        self.left -= 1;
        // SAFETY: a live entry, which is returned once, its key for reading and its value for
        // writing; the iterator came from a cursor with exclusive access for `'a`.
        unsafe {
            let key = self.map.key_place(position).as_ref();
            (key, Mut::from_raw(self.heap, self.map.value_place(position)))
        }
    }
}

impl<'a, K: Persist, V: Persist> Iterator for IterMut<'a, K, V> {
    type Item = (&'a K, Mut<'a, V>);

    fn next(&mut self) -> Option<Self::Item> {
        let map = self.map;
        let position = self.positions.find(|position| map.hash_at(*position) != 0)?;
        Some(self.pair(position))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<K: Persist, V: Persist> DoubleEndedIterator for IterMut<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let map = self.map;
        let position = self.positions.rfind(|position| map.hash_at(*position) != 0)?;
        Some(self.pair(position))
    }
}

impl<K: Persist, V: Persist> ExactSizeIterator for IterMut<'_, K, V> {}
impl<K: Persist, V: Persist> FusedIterator for IterMut<'_, K, V> {}

impl<'a, K: Persist, V: Persist> IntoIterator for Mut<'a, PMap<K, V>> {
    type Item = (&'a K, Mut<'a, V>);
    type IntoIter = IterMut<'a, K, V>;

    fn into_iter(self) -> IterMut<'a, K, V> {
        let heap = self.heap;
        let map = self.into_ref();
        IterMut {
            heap,
            map,
            positions: 0..map.used as usize,
            left: map.len(),
            exclusive: PhantomData,
        }
    }
}

values_mut!(
    /// Iterator of `Mut<'_, PMap<K, V>>::values_mut`.
    ValuesMut, IterMut
);
