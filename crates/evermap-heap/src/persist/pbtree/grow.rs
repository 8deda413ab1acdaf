//! Insertion into a [`PBTree`]: splits full nodes, and appends in order.
//!
//! Steps that can fail come first: the nodes that a split needs are allocated before anything is
//! moved, so a full object leaves the tree unchanged.

use std::mem::MaybeUninit;
use std::ptr::NonNull;

use super::node::{CAPACITY, HEIGHT_MAX, Inner, LEN_MIN, Node, NodeRef, Path};
use crate::HeapError;
use crate::alloc::Heap;
use crate::persist::build::Staged;
use crate::persist::{Mut, PBTree, POINTER_BYTES, Persist};

const OVERFLOW: HeapError = HeapError::CapacityOverflow { what: "PBTree" };

/// Entry and child that a split node passes to its parent, or an entry to insert in a leaf.
type Promoted<K, V> = (MaybeUninit<K>, MaybeUninit<V>, Option<NodeRef<K, V>>);

/// Preallocated nodes for a change that can't fail any more. Unused nodes are freed.
struct Spares<'h, K, V> {
    heap: &'h Heap,
    /// Leaves and inner nodes, by level from 0 up.
    nodes: [Option<NodeRef<K, V>>; HEIGHT_MAX],
}

impl<'h, K, V> Spares<'h, K, V> {
    /// Allocates one node for each level below `levels`.
    fn allocate(heap: &'h Heap, levels: usize) -> Result<Self, HeapError> {
        if levels > HEIGHT_MAX {
            return Err(OVERFLOW);
        }
        let mut spares = Spares { heap, nodes: [None; HEIGHT_MAX] };
        for (level, node) in spares.nodes.iter_mut().enumerate().take(levels) {
            let (size, align) = if level == 0 {
                (size_of::<Node<K, V>>(), align_of::<Node<K, V>>())
            } else {
                (size_of::<Inner<K, V>>(), align_of::<Inner<K, V>>())
            };
            let block = heap.allocate(size, align)?;
            // SAFETY: a fresh block of that size.
            *node = Some(unsafe { NodeRef::empty(block) });
        }
        Ok(spares)
    }

    /// Takes the node of a level. Called once per level.
    fn take(&mut self, level: usize) -> NodeRef<K, V> {
        self.nodes[level].take().unwrap_or_else(|| unreachable!("counted before the change began"))
    }
}

impl<K, V> Drop for Spares<'_, K, V> {
    fn drop(&mut self) {
        for node in self.nodes.iter().flatten() {
            // SAFETY: allocated here, and not part of a tree.
            unsafe { self.heap.free(node.block()) };
        }
    }
}

impl<'a, K: Persist, V: Persist> Mut<'a, PBTree<K, V>> {
    /// Inserts an entry at the edge that `path` leads to. Returns the place of its value.
    pub(super) fn insert_at(
        &mut self,
        path: Option<Path<K, V>>,
        key: Staged<'_, K>,
        value: Staged<'_, V>,
    ) -> Result<NonNull<V>, HeapError> {
        let Some(path) = path else {
            return self.insert_first(key, value);
        };
        let leaf = path.node(0);
        if !leaf.is_full() {
            leaf.insert(path.place(0), key.take(), value.take(), None);
            self.raw().len += 1;
            return Ok(leaf.value_place(path.place(0)));
        }
        let height = path.height();
        let full = (0..height).take_while(|level| path.node(*level).is_full()).count();
        // One node for each split, and a root if all levels split.
        let mut spares = Spares::allocate(self.heap, full + usize::from(full == height))?;
        // At the right end of the tree keys are likely to ascend, so new nodes start small there.
        let at_end = (0..height).all(|level| path.place(level) == path.node(level).len());
        let middle = if at_end { CAPACITY - LEN_MIN } else { CAPACITY / 2 };

        let mut place = None;
        let mut carried: Promoted<K, V> = (key.take(), value.take(), None);
        for level in 0..full {
            let (node, right) = (path.node(level), spares.take(level));
            let (split_key, split_value) = node.split(middle, right, level == 0);
            let at = path.place(level);
            let (side, at) = if at <= middle { (node, at) } else { (right, at - middle - 1) };
            side.insert(at, carried.0, carried.1, carried.2);
            place.get_or_insert_with(|| side.value_place(at));
            carried = (split_key, split_value, Some(right));
        }
        if full < height {
            path.node(full).insert(path.place(full), carried.0, carried.1, carried.2);
        } else {
            self.raise(spares.take(height)).insert(0, carried.0, carried.1, carried.2);
        }
        self.raw().len += 1;
        Ok(place.unwrap_or_else(|| unreachable!("the leaf was split")))
    }

    fn insert_first(
        &mut self,
        key: Staged<'_, K>,
        value: Staged<'_, V>,
    ) -> Result<NonNull<V>, HeapError> {
        let leaf = Spares::allocate(self.heap, 1)?.take(0);
        leaf.insert(0, key.take(), value.take(), None);
        let tree = self.raw();
        (tree.root, tree.height, tree.len) = (Some(leaf), 1, 1);
        Ok(leaf.value_place(0))
    }

    /// Puts an empty inner node above the root.
    fn raise(&mut self, top: NodeRef<K, V>) -> NodeRef<K, V> {
        let tree = self.raw();
        if let Some(root) = tree.root.replace(top) {
            top.set_child(0, root);
        }
        tree.height += 1;
        top
    }
}

/// Appends entries after the last one and fills each node before it starts the next. Nodes at the
/// right end may be too small until the value is dropped, which rebalances them.
pub(in crate::persist) struct Filling<'c, 'a, K: Persist, V: Persist> {
    tree: &'c mut Mut<'a, PBTree<K, V>>,
    /// Path to the last edge, or `None` while the tree is empty.
    path: Option<Path<K, V>>,
}

impl<'c, 'a, K: Persist, V: Persist> Filling<'c, 'a, K, V> {
    pub(in crate::persist) fn begin(tree: &'c mut Mut<'a, PBTree<K, V>>) -> Self {
        let path = tree.last_edge();
        Filling { tree, path }
    }

    /// Returns the last key. The next key must be greater.
    pub(in crate::persist) fn last_key(&self) -> Option<&K> {
        let path = self.path.as_ref()?;
        let level = (0..path.height()).find(|level| path.node(*level).len() > 0)?;
        let node = path.node(level);
        // SAFETY: a valid key of the tree, which is borrowed.
        Some(unsafe { node.key_place(node.len() - 1).as_ref() })
    }

    pub(in crate::persist) fn append(
        &mut self,
        key: Staged<'_, K>,
        value: Staged<'_, V>,
    ) -> Result<(), HeapError> {
        let Some(path) = &mut self.path else {
            self.tree.insert_first(key, value)?;
            self.path = self.tree.last_edge();
            return Ok(());
        };
        let height = path.height();
        let full = (0..height).take_while(|level| path.node(*level).is_full()).count();
        // New nodes are needed below the node that takes the entry, and above if all are full.
        let levels = if full < height { full } else { height + 1 };
        let mut spares = Spares::allocate(self.tree.heap, levels)?;
        let behind = (full > 0).then(|| {
            (1..full).fold(spares.take(0), |below, level| {
                let node = spares.take(level);
                node.set_child(0, below);
                node
            })
        });
        let node =
            if full < height { path.node(full) } else { self.tree.raise(spares.take(height)) };
        let at = node.len();
        node.insert(at, key.take(), value.take(), behind);
        self.tree.raw().len += 1;
        if full == 0 {
            path.set_place(0, at + 1);
        } else {
            // The nodes on the path have changed.
            self.path = self.tree.last_edge();
        }
        Ok(())
    }

    /// Moves entries from the left into nodes at the right end that have too few. Their neighbours
    /// were filled first, so there are enough entries.
    fn rebalance(&mut self) {
        let Some(path) = &self.path else { return };
        for level in (1..path.height()).rev() {
            // Read again from the parent: lending moves children but replaces no node.
            let node = path.node(level);
            let last = node.len();
            let missing = LEN_MIN.saturating_sub(node.child(last).len());
            if missing > 0 {
                node.lend_right(last - 1, missing, level == 1);
            }
        }
    }
}

impl<K: Persist, V: Persist> Drop for Filling<'_, '_, K, V> {
    fn drop(&mut self) {
        self.rebalance();
    }
}

const _: () = assert!(size_of::<Option<NodeRef<u8, u8>>>() == POINTER_BYTES);
