//! Editing an ordered map through its cursor, and building one.
//!
//! A key or value is built before the tree is changed, and an entry is taken out before it is
//! released. So the tree is valid wherever user code runs, and a failure changes nothing.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::ops::RangeBounds;
use std::ptr::NonNull;

use super::grow::Filling;
use super::iter::{IterMut, RangeMut, ValuesMut};
use super::node::Path;
use crate::HeapError;
use crate::persist::build::Staged;
use crate::persist::{Build, Built, FromIter, KeySource, Mut, PBTree, Persist, Slot};

impl<'a, K: Persist, V: Persist> Mut<'a, PBTree<K, V>> {
    /// Sets the value of a key: replaces the value of an existing key, or inserts an entry.
    /// Logarithmic time.
    ///
    /// The key is looked up before it is built, so an existing key costs no allocation.
    ///
    /// # Errors
    ///
    /// Returns an error when the object can't grow. The tree's contents are unchanged then.
    ///
    /// ```
    /// use evermap::{PBTree, PString, Scratch};
    ///
    /// let mut object = Scratch::<PBTree<PString, PString>>::new([("name", "a")])?;
    /// object.root_mut().insert("name", "b")?;
    /// assert_eq!(object.root().get("name").map(|name| name.as_str()), Some("b"));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn insert<S, U>(&mut self, key: S, value: U) -> Result<Mut<'_, V>, HeapError>
    where
        S: KeySource<K, Query: Ord>,
        K: Build<S> + Borrow<S::Query>,
        V: Build<U>,
    {
        let place = match self.locate_value(key.query()) {
            (_, Some(place)) => {
                self.cursor(place).assign(value)?;
                place
            }
            (edge, None) => self.build_at_edge(edge, key, value)?,
        };
        Ok(self.cursor(place))
    }

    /// Returns the value of a key. Inserts the value returned by `make` if the key does not exist.
    ///
    /// # Errors
    ///
    /// Same errors as [`insert`](Mut::insert).
    ///
    /// ```
    /// use evermap::{PBTree, PString, Scratch};
    ///
    /// let mut object = Scratch::<PBTree<PString, u64>>::new([("a", 1)])?;
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
        S: KeySource<K, Query: Ord>,
        K: Build<S> + Borrow<S::Query>,
        V: Build<U>,
    {
        let place = match self.locate_value(key.query()) {
            (_, Some(place)) => place,
            (edge, None) => self.build_at_edge(edge, key, make())?,
        };
        Ok(self.cursor(place))
    }

    /// Inserts each pair of sources. While the keys ascend, and are greater than all existing ones,
    /// an entry takes constant time and nodes are filled completely. Other entries are inserted
    /// like by [`insert`](Mut::insert).
    ///
    /// # Errors
    ///
    /// Same errors as [`insert`](Mut::insert). The pairs before the failing one stay.
    ///
    /// ```
    /// use evermap::{PBTree, Scratch};
    ///
    /// let mut object = Scratch::<PBTree<u64, u64>>::new([(1, 10)])?;
    /// object.root_mut().extend((2..1000).map(|key| (key, key * 10)))?;
    /// assert_eq!(object.root().len(), 999);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn extend<S, U>(&mut self, pairs: impl IntoIterator<Item = (S, U)>) -> Result<(), HeapError>
    where
        S: KeySource<K, Query: Ord>,
        K: Build<S> + Borrow<S::Query>,
        V: Build<U>,
    {
        let mut pairs = pairs.into_iter();
        let heap = self.heap;
        let mut filling = Filling::begin(self);
        let out_of_order = loop {
            let Some((key, value)) = pairs.next() else { return Ok(()) };
            if filling.last_key().is_some_and(|last| last.borrow() >= key.query()) {
                break (key, value);
            }
            let key = Staged::build(heap, key)?;
            filling.append(key, Staged::build(heap, value)?)?;
        };
        drop(filling);
        for (key, value) in std::iter::once(out_of_order).chain(pairs) {
            self.insert(key, value)?;
        }
        Ok(())
    }

    /// Returns a cursor to the value of a key.
    ///
    /// ```
    /// use evermap::{PBTree, PString, Scratch};
    ///
    /// let mut object = Scratch::<PBTree<PString, PString>>::new([("name", "a")])?;
    /// if let Some(mut name) = object.root_mut().get_mut("name") {
    ///     name.push_str("b")?;
    /// }
    /// assert_eq!(object.root().get("name").map(|name| name.as_str()), Some("ab"));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn get_mut<Q>(&mut self, key: &Q) -> Option<Mut<'_, V>>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.reborrow().into_get_mut(key)
    }

    /// Like [`get_mut`](Mut::get_mut), with the full lifetime of this cursor.
    pub fn into_get_mut<Q>(self, key: &Q) -> Option<Mut<'a, V>>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let place = self.locate_value(key).1?;
        // SAFETY: a valid value of the tree, and the cursor is consumed.
        Some(unsafe { Mut::from_raw(self.heap, place) })
    }

    /// Removes and releases the entry of a key. Returns true if there was one. For `Copy` values,
    /// [`take`](Mut::take) returns the value. Logarithmic time.
    ///
    /// ```
    /// use evermap::{PBTree, PString, Scratch};
    ///
    /// let mut object = Scratch::<PBTree<PString, u64>>::new([("a", 1), ("b", 2), ("c", 3)])?;
    /// assert!(object.root_mut().remove("b"));
    /// assert!(object.root().values().eq(&[1, 3]));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn remove<Q>(&mut self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let Some((path, Some(level))) = self.search(key) else { return false };
        self.discard_entry(path, level);
        true
    }

    /// Removes the entry of a key and returns its value.
    ///
    /// ```
    /// use evermap::{PBTree, PString, Scratch};
    ///
    /// let mut object = Scratch::<PBTree<PString, u64>>::new([("a", 1)])?;
    /// assert_eq!(object.root_mut().take("a"), Some(1));
    /// assert_eq!(object.root_mut().take("a"), None);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn take<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
        V: Copy,
    {
        let (path, level) = self.search(key)?;
        let level = level?;
        // SAFETY: a valid value of the tree, and `Copy`.
        let value = unsafe { path.node(level).value_place(path.place(level)).read() };
        self.discard_entry(path, level);
        Some(value)
    }

    /// Removes the first entry and returns it. For entries that own memory, see
    /// [`discard_first`](Mut::discard_first).
    ///
    /// ```
    /// use evermap::{PBTree, Scratch};
    ///
    /// let mut object = Scratch::<PBTree<u64, u64>>::new([(2, 20), (1, 10)])?;
    /// assert_eq!(object.root_mut().pop_first(), Some((1, 10)));
    /// assert_eq!(object.root_mut().pop_first(), Some((2, 20)));
    /// assert_eq!(object.root_mut().pop_first(), None);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn pop_first(&mut self) -> Option<(K, V)>
    where
        K: Copy,
        V: Copy,
    {
        let entry = self.first_key_value().map(|(key, value)| (*key, *value))?;
        self.discard_first();
        Some(entry)
    }

    /// Removes the last entry and returns it. For entries that own memory, see
    /// [`discard_last`](Mut::discard_last).
    ///
    /// ```
    /// use evermap::{PBTree, Scratch};
    ///
    /// let mut object = Scratch::<PBTree<u64, u64>>::new([(2, 20), (1, 10)])?;
    /// assert_eq!(object.root_mut().pop_last(), Some((2, 20)));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn pop_last(&mut self) -> Option<(K, V)>
    where
        K: Copy,
        V: Copy,
    {
        let entry = self.last_key_value().map(|(key, value)| (*key, *value))?;
        self.discard_last();
        Some(entry)
    }

    /// Removes and releases the first entry. Returns true if there was one. Read it first with
    /// [`PBTree::first_key_value`].
    ///
    /// ```
    /// use evermap::{PBTree, PString, Scratch};
    ///
    /// let mut object = Scratch::<PBTree<PString, u64>>::new([("a", 1), ("b", 2)])?;
    /// assert!(object.root_mut().discard_first());
    /// assert!(object.root().values().eq(&[2]));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn discard_first(&mut self) -> bool {
        let Some(path) = self.first_edge() else { return false };
        self.discard_entry(path, 0);
        true
    }

    /// Removes and releases the last entry. Returns true if there was one.
    ///
    /// ```
    /// use evermap::{PBTree, PString, Scratch};
    ///
    /// let mut object = Scratch::<PBTree<PString, u64>>::new([("a", 1), ("b", 2)])?;
    /// assert!(object.root_mut().discard_last());
    /// assert!(object.root().values().eq(&[1]));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn discard_last(&mut self) -> bool {
        let Some(mut path) = self.last_edge() else { return false };
        path.set_place(0, path.place(0) - 1);
        self.discard_entry(path, 0);
        true
    }

    /// Keeps the entries for which `keep` returns true and releases the others. Takes linear time,
    /// plus logarithmic time for each removed entry. Uses one byte of the process's own memory per
    /// entry while it runs. If `keep` panics, no entry is removed.
    ///
    /// ```
    /// use evermap::{PBTree, Scratch};
    ///
    /// let mut object = Scratch::<PBTree<u64, u64>>::new([(1, 10), (2, 20), (3, 30)])?;
    /// object.root_mut().retain(|key, _| key % 2 == 1);
    /// assert!(object.root().keys().eq(&[1, 3]));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn retain(&mut self, mut keep: impl FnMut(&K, Mut<'_, V>) -> bool) {
        let kept: Vec<bool> = self.iter_mut().map(|(key, value)| keep(key, value)).collect();
        let (Some(mut from), Some(mut to)) = (self.first_edge(), self.first_edge()) else { return };
        let mut count = 0;
        // Remaining entries move up to the places of removed ones, in the tree's order.
        for stays in &kept {
            let Some((node, at)) = from.next() else { break };
            let (key, value) = node.read(at);
            if !stays {
                // SAFETY: an entry of the tree. The bytes left in its place are invalid from here
                // on, and are overwritten or dropped from the tree before it is used again.
                drop(unsafe { (Staged::adopt(self.heap, key), Staged::adopt(self.heap, value)) });
                continue;
            }
            let place = to.next();
            count += 1;
            if let Some((target, target_at)) = place
                && (target != node || target_at != at)
            {
                target.write(target_at, key, value);
            }
        }
        self.truncate_unreleased(count);
    }

    /// Releases all entries and nodes.
    ///
    /// ```
    /// use evermap::{PBTree, Scratch};
    ///
    /// let mut object = Scratch::<PBTree<u64, u64>>::new([(1, 10)])?;
    /// object.root_mut().clear();
    /// assert!(object.root().is_empty());
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn clear(&mut self) {
        self.set(PBTree::new());
    }

    /// Returns each key with a cursor to its value, in order.
    ///
    /// ```
    /// use evermap::{PBTree, Scratch};
    ///
    /// let mut object = Scratch::<PBTree<u64, u64>>::new([(1, 10), (2, 20)])?;
    /// for (key, mut value) in object.root_mut().iter_mut() {
    ///     *value += key;
    /// }
    /// assert!(object.root().values().eq(&[11, 22]));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn iter_mut(&mut self) -> IterMut<'_, K, V> {
        self.reborrow().into_iter()
    }

    /// Returns each key in a range with a cursor to its value, in order. See [`PBTree::range`].
    ///
    /// ```
    /// use evermap::{PBTree, Scratch};
    ///
    /// let mut object = Scratch::<PBTree<u64, u64>>::new([(1, 10), (2, 20)])?;
    /// for (_, mut value) in object.root_mut().range_mut(2..) {
    ///     *value += 1;
    /// }
    /// assert!(object.root().values().eq(&[10, 21]));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn range_mut<Q, R>(&mut self, range: R) -> RangeMut<'_, K, V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
        R: RangeBounds<Q>,
    {
        let span = self.span(range);
        // SAFETY: the span lies in the cursor's tree, and the cursor is borrowed for the iterator's
        // lifetime.
        unsafe { RangeMut::new(self.heap, span) }
    }

    /// Returns cursors to the values, in the order of their keys.
    ///
    /// ```
    /// use evermap::{PBTree, Scratch};
    ///
    /// let mut object = Scratch::<PBTree<u64, u64>>::new([(1, 10), (2, 20)])?;
    /// for mut value in object.root_mut().values_mut() {
    ///     *value += 1;
    /// }
    /// assert!(object.root().values().eq(&[11, 21]));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn values_mut(&mut self) -> ValuesMut<'_, K, V> {
        ValuesMut(self.iter_mut())
    }

    /// Sets the value of a key that was already built, like [`insert`](Mut::insert).
    #[cfg(feature = "serde")]
    pub(in crate::persist) fn insert_staged(
        &mut self,
        key: Staged<'_, K>,
        value: Staged<'_, V>,
    ) -> Result<(), HeapError>
    where
        K: Ord,
    {
        match self.locate_value(&*key) {
            // SAFETY: a value of this object, which is moved in.
            (_, Some(place)) => unsafe { self.cursor(place).replace_from(&value.take()) },
            (edge, None) => {
                self.insert_at(edge, key, value)?;
            }
        }
        Ok(())
    }

    /// Finds the value of a key, or the edge where it would be.
    fn locate_value<Q>(&self, key: &Q) -> (Option<Path<K, V>>, Option<NonNull<V>>)
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let Some((path, found)) = self.search(key) else { return (None, None) };
        let place = found.map(|level| path.node(level).value_place(path.place(level)));
        (Some(path), place)
    }

    fn build_at_edge<S, U>(
        &mut self,
        edge: Option<Path<K, V>>,
        key: S,
        value: U,
    ) -> Result<NonNull<V>, HeapError>
    where
        K: Build<S>,
        V: Build<U>,
    {
        let key = Staged::build(self.heap, key)?;
        let value = Staged::build(self.heap, value)?;
        self.insert_at(edge, key, value)
    }

    fn discard_entry(&mut self, path: Path<K, V>, level: usize) {
        let heap = self.heap;
        let (key, value) = self.unlink(path, level);
        // SAFETY: an entry that was removed from the tree.
        drop(unsafe { (Staged::adopt(heap, key), Staged::adopt(heap, value)) });
    }

    fn cursor(&mut self, place: NonNull<V>) -> Mut<'_, V> {
        // SAFETY: a valid value of the tree.
        unsafe { Mut::from_raw(self.heap, place) }
    }
}

impl<K: Persist, V: Persist> Build<PBTree<K, V>> for PBTree<K, V> {
    fn build<'a>(source: PBTree<K, V>, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
        Ok(slot.write(source))
    }
}

macro_rules! from_pairs {
    ($([$($generics:tt)*] $source:ty, $item:ident => $pairs:expr;)*) => {$(
        impl<K, V, S, U, $($generics)*> Build<$source> for PBTree<K, V>
        where
            S: KeySource<K, Query: Ord>,
            K: Build<S> + Borrow<S::Query>,
            V: Build<U>,
        {
            fn build<'a>($item: $source, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
                slot.write_with(PBTree::new(), |mut tree| tree.extend($pairs))
            }
        }
    )*};
}

from_pairs!(
    [const N: usize] [(S, U); N], source => source;
    [] Vec<(S, U)>, source => source;
    [] BTreeMap<S, U>, source => source;
    [H] HashMap<S, U, H>, source => source;
    [I: Iterator<Item = (S, U)>] FromIter<I>, source => source.0;
);
