//! The ordered map: its layout and reading. Nodes are in `node`, editing is in `edit`,
//! `grow` and `shrink`, iterators are in `iter`.
//!
//! A B-tree: entries lie in nodes of up to fifteen, in inner ones as well as in leaves. Layout (24
//! bytes, `repr(C)`):
//!
//! | offset | bytes | |
//! |---|---|---|
//! | 0 | 8 | `root`: pointer to the top node, or 0 |
//! | 8 | 8 | `len`: number of entries |
//! | 16 | 4 | `height`: levels of nodes; 1 if the root is a leaf, 0 if there is none |
//! | 20 | 4 | zero |
//!
//! Invariants: the root is null if and only if there are no entries, so an empty tree owns nothing
//! and is 24 zero bytes; keys ascend in the order of the tree; `node` lists the
//! invariants of nodes. If a user's `Ord` is inconsistent, lookups miss entries, but nothing worse
//! happens.

mod edit;
mod grow;
pub mod iter;
mod node;
mod shrink;
#[cfg(test)]
mod tests;

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::ops::{Bound, RangeBounds};
use std::ptr::NonNull;

#[cfg(feature = "serde")]
pub(super) use grow::Filling;

use super::{Bounds, Description, Mut, Persist, Releaser};
use iter::{Iter, Keys, Range, Span, Values};
use node::{NodeRef, Path};

/// An ordered map: `BTreeMap` for objects.
///
/// Keys are looked up by any borrowed form (`tree.get("key")` in a `PBTree<PString, V>`). Its
/// cursor has [`insert`](Mut::insert), [`get_or_insert_with`](Mut::get_or_insert_with),
/// [`extend`](Mut::extend), [`get_mut`](Mut::get_mut), [`remove`](Mut::remove),
/// [`pop_first`](Mut::pop_first), [`range_mut`](Mut::range_mut), [`retain`](Mut::retain) and so on.
/// Lookups, insertions and removals take logarithmic time; iterating from one entry to the next
/// takes constant time on average.
///
/// If the order doesn't matter, a [`PMap`](super::PMap) is faster. Building from keys in ascending
/// order is fastest, and fills the nodes.
///
/// ```
/// use evermap::{PBTree, PString, Scratch};
///
/// let mut object = Scratch::<PBTree<u64, PString>>::new([(1969, "moon"), (1957, "sputnik")])?;
/// object.root_mut().insert(1961, "vostok")?;
///
/// let flights = object.root();
/// assert_eq!(flights.first_key_value().map(|(year, _)| *year), Some(1957));
/// assert!(flights.range(1960..).map(|(_, name)| name.as_str()).eq(["vostok", "moon"]));
/// # Ok::<(), evermap::Error>(())
/// ```
#[repr(C)]
pub struct PBTree<K, V> {
    pub(super) root: Option<NodeRef<K, V>>,
    pub(super) len: u64,
    pub(super) height: u32,
    pub(super) reserved: u32,
}

const _: () = assert!(size_of::<PBTree<u8, u8>>() == 24 && align_of::<PBTree<u8, u8>>() == 8);
const _: () = assert!(std::mem::offset_of!(PBTree<u8, u8>, root) == 0);
const _: () = assert!(std::mem::offset_of!(PBTree<u8, u8>, len) == 8);
const _: () = assert!(std::mem::offset_of!(PBTree<u8, u8>, height) == 16);

// SAFETY: a tree owns its entries, like `BTreeMap`.
unsafe impl<K: Send, V: Send> Send for PBTree<K, V> {}
// SAFETY: a tree owns its entries, like `BTreeMap`.
unsafe impl<K: Sync, V: Sync> Sync for PBTree<K, V> {}

impl<K, V> PBTree<K, V> {
    /// Returns an empty tree, which owns nothing.
    ///
    /// ```
    /// assert!(evermap::PBTree::<u64, u64>::new().is_empty());
    /// ```
    pub const fn new() -> Self {
        PBTree { root: None, len: 0, height: 0, reserved: 0 }
    }

    /// Returns the number of entries, in constant time.
    ///
    /// ```
    /// use evermap::{PBTree, Scratch};
    ///
    /// let object = Scratch::<PBTree<u64, u64>>::new([(1, 10), (2, 20), (1, 30)])?;
    /// assert_eq!(object.root().len(), 2);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns true if there are no entries.
    ///
    /// ```
    /// assert!(evermap::PBTree::<u64, u64>::new().is_empty());
    /// ```
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the entries in the order of their keys.
    ///
    /// ```
    /// use evermap::{PBTree, Scratch};
    ///
    /// let object = Scratch::<PBTree<u64, u64>>::new([(2, 20), (1, 10)])?;
    /// assert_eq!(object.root().iter().collect::<Vec<_>>(), [(&1, &10), (&2, &20)]);
    /// assert_eq!(object.root().iter().next_back(), Some((&2, &20)));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn iter(&self) -> Iter<'_, K, V> {
        Iter::new(self)
    }

    /// Returns the keys in ascending order.
    ///
    /// ```
    /// use evermap::{PBTree, Scratch};
    ///
    /// let object = Scratch::<PBTree<u64, u64>>::new([(2, 20), (1, 10)])?;
    /// assert!(object.root().keys().eq(&[1, 2]));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn keys(&self) -> Keys<'_, K, V> {
        Keys(self.iter())
    }

    /// Returns the values in the order of their keys.
    ///
    /// ```
    /// use evermap::{PBTree, Scratch};
    ///
    /// let object = Scratch::<PBTree<u64, u64>>::new([(2, 20), (1, 10)])?;
    /// assert!(object.root().values().eq(&[10, 20]));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn values(&self) -> Values<'_, K, V> {
        Values(self.iter())
    }

    /// Returns the entry with the least key. Logarithmic time, without comparisons.
    ///
    /// ```
    /// use evermap::{PBTree, Scratch};
    ///
    /// let object = Scratch::<PBTree<u64, u64>>::new([(2, 20), (1, 10)])?;
    /// assert_eq!(object.root().first_key_value(), Some((&1, &10)));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn first_key_value(&self) -> Option<(&K, &V)> {
        self.first_edge()?.next().map(|(node, at)| self.pair(node, at))
    }

    /// Returns the entry with the greatest key. Logarithmic time, without comparisons.
    ///
    /// ```
    /// use evermap::{PBTree, Scratch};
    ///
    /// let object = Scratch::<PBTree<u64, u64>>::new([(2, 20), (1, 10)])?;
    /// assert_eq!(object.root().last_key_value(), Some((&2, &20)));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn last_key_value(&self) -> Option<(&K, &V)> {
        self.last_edge()?.previous().map(|(node, at)| self.pair(node, at))
    }

    /// Returns the value of a key.
    ///
    /// ```
    /// use evermap::{PBTree, PString, Scratch};
    ///
    /// let object = Scratch::<PBTree<PString, u64>>::new([("a", 1)])?;
    /// assert_eq!(object.root().get("a"), Some(&1));
    /// assert_eq!(object.root().get("b"), None);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.get_key_value(key).map(|(_, value)| value)
    }

    /// Returns the entry of a key.
    ///
    /// ```
    /// use evermap::{PBTree, PString, Scratch};
    ///
    /// let object = Scratch::<PBTree<PString, u64>>::new([("a", 1)])?;
    /// let entry = object.root().get_key_value("a");
    /// assert_eq!(entry.map(|(key, value)| (key.as_str(), *value)), Some(("a", 1)));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn get_key_value<Q>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let mut node = self.root?;
        for level in (0..self.height).rev() {
            // SAFETY: the tree is borrowed, so its nodes do not change.
            let (at, found) = locate(unsafe { node.key_slice() }, key);
            if found {
                return Some(self.pair(node, at));
            }
            if level > 0 {
                node = node.child(at);
            }
        }
        None
    }

    /// Returns true if there is an entry for a key.
    ///
    /// ```
    /// use evermap::{PBTree, PString, Scratch};
    ///
    /// let object = Scratch::<PBTree<PString, u64>>::new([("a", 1)])?;
    /// assert!(object.root().contains_key("a"));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.get_key_value(key).is_some()
    }

    /// Returns the entries whose keys lie in a range, in order. Starting takes logarithmic time. A
    /// range that ends before it begins is empty.
    ///
    /// ```
    /// use std::ops::Bound;
    /// use evermap::{PBTree, PString, Scratch};
    ///
    /// let object = Scratch::<PBTree<u64, u64>>::new([(1, 10), (2, 20), (3, 30)])?;
    /// assert!(object.root().range(2..).eq([(&2, &20), (&3, &30)]));
    ///
    /// let object = Scratch::<PBTree<PString, u64>>::new([("a", 1), ("b", 2), ("c", 3)])?;
    /// let from_b = (Bound::Included("b"), Bound::Unbounded);
    /// assert!(object.root().range::<str, _>(from_b).map(|(_, value)| *value).eq([2, 3]));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn range<Q, R>(&self, range: R) -> Range<'_, K, V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
        R: RangeBounds<Q>,
    {
        Range::new(self.span(range))
    }

    fn span<Q, R>(&self, range: R) -> Span<K, V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
        R: RangeBounds<Q>,
    {
        let (start, end) = (range.start_bound(), range.end_bound());
        if is_empty(start, end) {
            return Span::default();
        }
        let front = match start {
            Bound::Unbounded => self.first_edge(),
            Bound::Included(key) => self.edge(key, false),
            Bound::Excluded(key) => self.edge(key, true),
        };
        let back = match end {
            Bound::Unbounded => self.last_edge(),
            Bound::Included(key) => self.edge(key, true),
            Bound::Excluded(key) => self.edge(key, false),
        };
        Span::new(front, back)
    }

    /// Returns the edge before the first entry.
    fn first_edge(&self) -> Option<Path<K, V>> {
        let mut path = self.path()?;
        path.descend_first(path.height() - 1);
        Some(path)
    }

    /// Returns the edge after the last entry.
    fn last_edge(&self) -> Option<Path<K, V>> {
        let mut path = self.path()?;
        let top = path.height() - 1;
        path.set_place(top, path.node(top).len());
        path.descend_last(top);
        Some(path)
    }

    /// Returns the edge before or after a key, or where the key would be.
    fn edge<Q>(&self, key: &Q, behind: bool) -> Option<Path<K, V>>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let (mut path, found) = self.search(key)?;
        match found {
            Some(level) if behind => {
                path.set_place(level, path.place(level) + 1);
                path.descend_first(level);
            }
            Some(level) => path.descend_last(level),
            None => {}
        }
        Some(path)
    }

    /// Returns the path to a key and its level, or the path to the key's edge in a leaf if it does
    /// not exist.
    fn search<Q>(&self, key: &Q) -> Option<(Path<K, V>, Option<usize>)>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let mut path = Path::new(self.height as usize);
        let mut node = self.root?;
        for level in (0..self.height as usize).rev() {
            // SAFETY: the tree is borrowed, so its nodes do not change.
            let (at, found) = locate(unsafe { node.key_slice() }, key);
            path.go(level, node, at);
            if found {
                return Some((path, Some(level)));
            }
            if level > 0 {
                node = node.child(at);
            }
        }
        Some((path, None))
    }

    /// Returns the path to the first place of the root.
    fn path(&self) -> Option<Path<K, V>> {
        let root = self.root?;
        let mut path = Path::new(self.height as usize);
        path.go(path.height() - 1, root, 0);
        Some(path)
    }

    fn pair(&self, node: NodeRef<K, V>, at: usize) -> (&K, &V) {
        // SAFETY: a valid entry of a node of this tree, lent for the borrow of the tree.
        unsafe { (node.key_place(at).as_ref(), node.value_place(at).as_ref()) }
    }
}

/// Returns the number of keys in a node that are less than `key`, and true if the next one is
/// equal.
fn locate<K, Q>(keys: &[K], key: &Q) -> (usize, bool)
where
    K: Borrow<Q>,
    Q: Ord + ?Sized,
{
    // For keys of a few machine words, comparing all of them without an unpredictable branch is
    // faster.
    if size_of::<K>() <= 8 {
        let less = keys.iter().map(|there| usize::from(there.borrow() < key)).sum::<usize>();
        let found = keys.get(less).is_some_and(|there| there.borrow().cmp(key) == Ordering::Equal);
        return (less, found);
    }
    // Linear, because binary search takes twice the time for strings: the processor prefetches the
    // next key while it loads this one from memory.
    for (at, there) in keys.iter().enumerate() {
        match there.borrow().cmp(key) {
            Ordering::Less => {}
            Ordering::Equal => return (at, true),
            Ordering::Greater => return (at, false),
        }
    }
    (keys.len(), false)
}

/// Returns true if no key can lie between the bounds.
fn is_empty<Q: Ord + ?Sized>(start: Bound<&Q>, end: Bound<&Q>) -> bool {
    match (start, end) {
        (Bound::Excluded(start), Bound::Excluded(end)) => start >= end,
        (
            Bound::Included(start) | Bound::Excluded(start),
            Bound::Included(end) | Bound::Excluded(end),
        ) => start > end,
        _ => false,
    }
}

// SAFETY: 24 bytes of fixed layout; owns the nodes and their contents. A tree that owns nodes is
// created only inside an object: `new` returns an empty one, and there is no `Clone`.
unsafe impl<K: Persist, V: Persist> Persist for PBTree<K, V> {
    type Fields<'a> = Mut<'a, Self>;
    const OWNS: bool = true;

    fn fields(this: Mut<'_, Self>) -> Mut<'_, Self> {
        this
    }

    fn describe(description: &mut Description) {
        description.leaf("PBTree", &[K::describe, V::describe]);
    }

    unsafe fn release(this: NonNull<Self>, releaser: &mut Releaser<'_>) {
        // SAFETY: a valid tree owns its nodes and gives them up here.
        unsafe {
            let this = this.as_ref();
            if let Some(root) = this.root {
                releaser.block_with(root.block(), this.height as usize, release_node::<K, V>);
            }
        }
    }

    unsafe fn is_bounded(this: NonNull<Self>, bounds: &Bounds<'_>) -> bool {
        // SAFETY: any bytes are a nullable pointer and numbers, and the caller lets them be read.
        let this = unsafe { this.as_ref() };
        match this.root {
            None => this.len == 0,
            Some(root) => root.is_bounded(this.height, bounds),
        }
    }
}

unsafe fn release_node<K: Persist, V: Persist>(
    block: NonNull<u8>,
    height: usize,
    releaser: &mut Releaser<'_>,
) {
    let node = NodeRef::<K, V>::in_block(block);
    for at in 0..node.len() {
        // SAFETY: a valid entry of a node that is being released.
        unsafe {
            K::release(node.key_place(at), releaser);
            V::release(node.value_place(at), releaser);
        }
    }
    if height > 1 {
        for at in 0..=node.len() {
            let child = node.child(at).block();
            // SAFETY: the node owns its children, and is being released.
            unsafe { releaser.block_with(child, height - 1, release_node::<K, V>) };
        }
    }
    // SAFETY: the node's contents were released, and nothing refers to the block.
    unsafe { releaser.free(block) };
}
