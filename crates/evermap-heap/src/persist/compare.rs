//! Comparing, hashing, formatting and indexing containers, with each other and with the standard
//! library's types. The implementations for vectors and strings are in their own files.
//!
//! The container comes first: `tree == std_map` and not the other way round. An implementation for
//! the standard type would give the compiler a second candidate, so programs that compare such a
//! type with the result of `collect()` would no longer compile.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Index;

use super::{KeySource, PBTree, PBox, PMap, PVec, PersistHash};

impl<K, V> Default for PBTree<K, V> {
    fn default() -> Self {
        PBTree::new()
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for PBTree<K, V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_map().entries(self).finish()
    }
}

impl<K: PartialEq, V: PartialEq> PartialEq for PBTree<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other)
    }
}

impl<K: Eq, V: Eq> Eq for PBTree<K, V> {}

impl<K: PartialOrd, V: PartialOrd> PartialOrd for PBTree<K, V> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.iter().partial_cmp(other)
    }
}

impl<K: Ord, V: Ord> Ord for PBTree<K, V> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.iter().cmp(other)
    }
}

impl<K: Hash, V: Hash> Hash for PBTree<K, V> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.len().hash(state);
        self.iter().for_each(|entry| entry.hash(state));
    }
}

impl<K: PartialEq<A>, V: PartialEq<B>, A, B> PartialEq<BTreeMap<A, B>> for PBTree<K, V> {
    fn eq(&self, other: &BTreeMap<A, B>) -> bool {
        self.len() == other.len()
            && self.iter().zip(other).all(|((key, value), (k, v))| key == k && value == v)
    }
}

/// Equal if both have the same entries, in any order.
impl<K, V, A, B, H> PartialEq<HashMap<A, B, H>> for PMap<K, V>
where
    A: KeySource<K, Query: PersistHash + Eq>,
    K: Borrow<A::Query>,
    V: PartialEq<B>,
{
    fn eq(&self, other: &HashMap<A, B, H>) -> bool {
        let same = |(key, value): (&A, &B)| self.get(key.query()).is_some_and(|v| v == value);
        self.len() == other.len() && other.iter().all(same)
    }
}

/// Returns the value of a key.
///
/// # Panics
///
/// If the key does not exist, like the standard library's maps. [`PBTree::get`] does not panic.
///
/// ```
/// use evermap::{PBTree, PString, Scratch};
///
/// let object = Scratch::<PBTree<PString, u64>>::new([("a", 1)])?;
/// assert_eq!(object.root()["a"], 1);
/// # Ok::<(), evermap::Error>(())
/// ```
impl<K: Borrow<Q>, Q: Ord + ?Sized, V> Index<&Q> for PBTree<K, V> {
    type Output = V;

    fn index(&self, key: &Q) -> &V {
        match self.get(key) {
            Some(value) => value,
            None => panic!("PBTree has no entry for this key"),
        }
    }
}

/// Returns the value of a key.
///
/// # Panics
///
/// If the key does not exist, like the standard library's maps. [`PMap::get`] does not panic.
///
/// ```
/// use evermap::{PMap, PString, Scratch};
///
/// let object = Scratch::<PMap<PString, u64>>::new([("a", 1)])?;
/// assert_eq!(object.root()["a"], 1);
/// # Ok::<(), evermap::Error>(())
/// ```
impl<K: Borrow<Q>, Q: PersistHash + Eq + ?Sized, V> Index<&Q> for PMap<K, V> {
    type Output = V;

    fn index(&self, key: &Q) -> &V {
        match self.get(key) {
            Some(value) => value,
            None => panic!("PMap has no entry for this key"),
        }
    }
}

impl<T: PartialEq<U>, U> PartialEq<&[U]> for PVec<T> {
    fn eq(&self, other: &&[U]) -> bool {
        self.as_slice() == *other
    }
}

impl<T: PartialOrd> PartialOrd for PBox<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (**self).partial_cmp(&**other)
    }
}

impl<T: Ord> Ord for PBox<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl<T: Hash> Hash for PBox<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl<T: fmt::Display> fmt::Display for PBox<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}
