//! Nodes of a [`PBTree`](crate::PBTree): their layout, and moving entries within and between them.
//!
//! A node lies in one block. A leaf is
//!
//! | offset | bytes | |
//! |---|---|---|
//! | 0 | 2 | `len`: entries in use |
//! | 2 | 6 | zero |
//! | 8, aligned for `K` | 15 keys | `keys`, ascending |
//! | after, aligned for `V` | 15 values | `values`, each at its key's index |
//!
//! An inner node continues, aligned for them, with 16 `children`: child `i` holds the keys less
//! than key `i`, child `len` the rest. All leaves have the same depth, so the tree's height tells
//! which nodes are leaves. Every node except the root holds at least [`LEN_MIN`] entries.
//!
//! Everything here works with raw pointers and creates no reference to a whole node, so cursors to
//! values stay valid while keys are read. The creator of a [`NodeRef`] guarantees its invariants.

use std::mem::MaybeUninit;
use std::ptr::NonNull;

use crate::persist::{Bounds, POINTER_BYTES};

/// Maximum number of entries in a node. Chosen by measuring a million `u64` keys and values in
/// random order against 11, 23 and 31: see `docs/persist.md`. Such a leaf fills a block of 256
/// bytes, an inner node one of 384.
pub(super) const CAPACITY: usize = 15;

/// Minimum number of entries in a node, unless it is the root. A quarter and not a half, so that a
/// split at the right end may leave three quarters in the left node, which suits ascending keys.
pub(super) const LEN_MIN: usize = CAPACITY.div_ceil(4);

/// Maximum number of levels. Blocks take at least 16 bytes of at most 2^47, so there are less than
/// 2^43 nodes, and each inner one has at least five children (the root two): 19 levels.
pub(super) const HEIGHT_MAX: usize = 20;

// Two nodes that must be merged, and the entry between them, fit into one.
const _: () = assert!(LEN_MIN - 1 + LEN_MIN < CAPACITY);
const _: () = assert!(LEN_MIN >= 4 && 2 * 5_u128.pow(HEIGHT_MAX as u32 - 2) > 1 << 42);

/// A leaf, and the first part of every inner node.
#[repr(C)]
pub struct Node<K, V> {
    len: u16,
    reserved: [u8; 6],
    keys: [MaybeUninit<K>; CAPACITY],
    values: [MaybeUninit<V>; CAPACITY],
}

/// An inner node.
#[repr(C)]
pub struct Inner<K, V> {
    node: Node<K, V>,
    children: [MaybeUninit<NodeRef<K, V>>; CAPACITY + 1],
}

const _: () = assert!(size_of::<Node<u64, u64>>() == 248);
const _: () = assert!(size_of::<Inner<u64, u64>>() == 248 + 16 * POINTER_BYTES);
const _: () = assert!(std::mem::offset_of!(Node<u64, u64>, keys) == 8);
const _: () = assert!(std::mem::offset_of!(Node<u8, u8>, keys) == 8);
const _: () = assert!(std::mem::offset_of!(Node<u64, u64>, values) == 128);
const _: () = assert!(std::mem::offset_of!(Inner<u8, u8>, children) == 40);

/// A node of a tree. Eight bytes, never null.
///
/// The creator guarantees that it points to a node whose first `len` entries (and, in an inner
/// node, `len + 1` children) are valid, that it is used only while this holds, and that writing
/// through it happens only with exclusive access to the tree.
#[repr(transparent)]
pub struct NodeRef<K, V>(NonNull<Node<K, V>>);

impl<K, V> Clone for NodeRef<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for NodeRef<K, V> {}

impl<K, V> PartialEq for NodeRef<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

// The methods' `unsafe` blocks rely on the guarantee above: places below `CAPACITY` lie in the
// node.
impl<K, V> NodeRef<K, V> {
    /// Returns true if a node of this height may lie there. Reads nothing in it.
    pub(super) fn is_bounded(self, height: u32, bounds: &Bounds<'_>) -> bool {
        match height {
            0 | 65.. => false,
            1 => bounds.contain_row(self.0.as_ptr().cast_const(), 1),
            _ => bounds.contain_row(self.0.as_ptr().cast::<Inner<K, V>>().cast_const(), 1),
        }
    }

    /// Turns a fresh block into an empty node.
    ///
    /// # Safety
    ///
    /// The block is writable and large enough for a leaf or inner node, as intended.
    pub(super) unsafe fn empty(block: NonNull<u8>) -> Self {
        let node = NodeRef(block.cast::<Node<K, V>>());
        // SAFETY: the caller guarantees a writable block of sufficient size.
        unsafe {
            (*node.0.as_ptr()).len = 0;
            (*node.0.as_ptr()).reserved = [0; 6];
        }
        node
    }

    /// Returns the node in a block.
    pub(super) fn in_block(block: NonNull<u8>) -> Self {
        NodeRef(block.cast())
    }

    pub(super) fn block(self) -> NonNull<u8> {
        self.0.cast()
    }

    pub(super) fn len(self) -> usize {
        // SAFETY: a node.
        unsafe { usize::from((*self.0.as_ptr()).len) }
    }

    pub(super) fn set_len(self, len: usize) {
        debug_assert!(len <= CAPACITY);
        // SAFETY: a node, exclusively.
        unsafe { (*self.0.as_ptr()).len = len as u16 }
    }

    pub(super) fn is_full(self) -> bool {
        self.len() == CAPACITY
    }

    fn keys(self) -> NonNull<K> {
        // SAFETY: a node, and not null.
        unsafe { NonNull::new_unchecked(&raw mut (*self.0.as_ptr()).keys).cast() }
    }

    fn values(self) -> NonNull<V> {
        // SAFETY: a node, and not null.
        unsafe { NonNull::new_unchecked(&raw mut (*self.0.as_ptr()).values).cast() }
    }

    fn children(self) -> NonNull<NodeRef<K, V>> {
        let inner = self.0.as_ptr().cast::<Inner<K, V>>();
        // SAFETY: called for inner nodes only.
        unsafe { NonNull::new_unchecked(&raw mut (*inner).children).cast() }
    }

    /// Returns the place of a key.
    pub(super) fn key_place(self, at: usize) -> NonNull<K> {
        debug_assert!(at < CAPACITY);
        // SAFETY: in the node.
        unsafe { self.keys().add(at) }
    }

    /// Returns the place of a value.
    pub(super) fn value_place(self, at: usize) -> NonNull<V> {
        debug_assert!(at < CAPACITY);
        // SAFETY: in the node.
        unsafe { self.values().add(at) }
    }

    /// Returns a child of an inner node.
    pub(super) fn child(self, at: usize) -> NodeRef<K, V> {
        debug_assert!(at <= self.len());
        // SAFETY: an inner node has `len + 1` children.
        unsafe { self.children().add(at).read() }
    }

    pub(super) fn set_child(self, at: usize, child: NodeRef<K, V>) {
        debug_assert!(at <= CAPACITY);
        // SAFETY: in the node, exclusively.
        unsafe { self.children().add(at).write(child) }
    }

    /// Returns the keys.
    ///
    /// # Safety
    ///
    /// No keys of the node are written during `'a`.
    pub(super) unsafe fn key_slice<'a>(self) -> &'a [K] {
        // SAFETY: the first `len` keys are valid, and the caller guarantees that they are not
        // written.
        unsafe { std::slice::from_raw_parts(self.keys().as_ptr(), self.len()) }
    }

    /// Copies an entry out.
    pub(super) fn read(self, at: usize) -> (MaybeUninit<K>, MaybeUninit<V>) {
        // SAFETY: in the node; the caller decides whether the bytes are a valid entry.
        unsafe { (self.key_place(at).cast().read(), self.value_place(at).cast().read()) }
    }

    /// Overwrites an entry.
    pub(super) fn write(self, at: usize, key: MaybeUninit<K>, value: MaybeUninit<V>) {
        // SAFETY: in the node, exclusively.
        unsafe {
            self.key_place(at).cast().write(key);
            self.value_place(at).cast().write(value);
        }
    }

    /// Moves `count` entries from place `from` to place `to` of another node or of this one.
    pub(super) fn move_entries(self, from: usize, target: NodeRef<K, V>, to: usize, count: usize) {
        debug_assert!(from + count <= CAPACITY && to + count <= CAPACITY);
        // SAFETY: in the nodes, exclusively; the ranges may overlap.
        unsafe {
            target.keys().add(to).copy_from(self.keys().add(from), count);
            target.values().add(to).copy_from(self.values().add(from), count);
        }
    }

    /// Like [`move_entries`](Self::move_entries), for children.
    pub(super) fn move_children(self, from: usize, target: NodeRef<K, V>, to: usize, count: usize) {
        debug_assert!(from + count <= CAPACITY + 1 && to + count <= CAPACITY + 1);
        // SAFETY: in the nodes, exclusively; both are inner nodes, and the ranges may overlap.
        unsafe { target.children().add(to).copy_from(self.children().add(from), count) }
    }

    /// Inserts an entry, and in an inner node the child after it, into a node that isn't full.
    pub(super) fn insert(
        self,
        at: usize,
        key: MaybeUninit<K>,
        value: MaybeUninit<V>,
        behind: Option<NodeRef<K, V>>,
    ) {
        let len = self.len();
        self.move_entries(at, self, at + 1, len - at);
        self.write(at, key, value);
        if let Some(child) = behind {
            self.move_children(at + 1, self, at + 2, len - at);
            self.set_child(at + 1, child);
        }
        self.set_len(len + 1);
    }

    /// Removes an entry from a leaf.
    pub(super) fn remove(self, at: usize) -> (MaybeUninit<K>, MaybeUninit<V>) {
        let entry = self.read(at);
        let behind = self.len() - at - 1;
        self.move_entries(at + 1, self, at, behind);
        self.set_len(at + behind);
        entry
    }

    /// Moves the entries after entry `middle` to an empty node and removes that entry.
    pub(super) fn split(
        self,
        middle: usize,
        right: NodeRef<K, V>,
        is_leaf: bool,
    ) -> (MaybeUninit<K>, MaybeUninit<V>) {
        let moved = self.len() - middle - 1;
        self.move_entries(middle + 1, right, 0, moved);
        if !is_leaf {
            self.move_children(middle + 1, right, 0, moved + 1);
        }
        right.set_len(moved);
        self.set_len(middle);
        self.read(middle)
    }

    /// Merges child `at` of an inner node, the entry after it and the next child into the first of
    /// the two children. Returns the second, which is empty then.
    pub(super) fn merge(self, at: usize, children_are_leaves: bool) -> NodeRef<K, V> {
        let (left, right) = (self.child(at), self.child(at + 1));
        let (before, moved) = (left.len(), right.len());
        let (key, value) = self.read(at);
        left.write(before, key, value);
        right.move_entries(0, left, before + 1, moved);
        if !children_are_leaves {
            right.move_children(0, left, before + 1, moved + 1);
        }
        left.set_len(before + 1 + moved);
        let behind = self.len() - at - 1;
        self.move_entries(at + 1, self, at, behind);
        self.move_children(at + 2, self, at + 1, behind);
        self.set_len(at + behind);
        right
    }

    /// Moves `count` entries of an inner node from child `at` to the front of the next child.
    pub(super) fn lend_right(self, at: usize, count: usize, children_are_leaves: bool) {
        let (left, right) = (self.child(at), self.child(at + 1));
        let (stay, there) = (left.len() - count, right.len());
        right.move_entries(0, right, count, there);
        left.move_entries(stay + 1, right, 0, count - 1);
        let (key, value) = self.read(at);
        right.write(count - 1, key, value);
        let (key, value) = left.read(stay);
        self.write(at, key, value);
        if !children_are_leaves {
            right.move_children(0, right, count, there + 1);
            left.move_children(stay + 1, right, 0, count);
        }
        left.set_len(stay);
        right.set_len(there + count);
    }

    /// Moves the first entry of child `at + 1` of an inner node to the end of child `at`.
    pub(super) fn lend_left(self, at: usize, children_are_leaves: bool) {
        let (left, right) = (self.child(at), self.child(at + 1));
        let (there, stay) = (left.len(), right.len() - 1);
        let (key, value) = self.read(at);
        left.write(there, key, value);
        let (key, value) = right.read(0);
        self.write(at, key, value);
        right.move_entries(1, right, 0, stay);
        if !children_are_leaves {
            left.set_child(there + 1, right.child(0));
            right.move_children(1, right, 0, stay + 1);
        }
        left.set_len(there + 1);
        right.set_len(stay);
    }
}

/// Path from the root down: one node per level, with leaves at level 0, and a place in each node:
/// the index of an entry, or of the child in which the path continues.
pub(super) struct Path<K, V> {
    nodes: [MaybeUninit<NodeRef<K, V>>; HEIGHT_MAX],
    places: [u16; HEIGHT_MAX],
    height: usize,
    /// Levels below this one have not been visited yet.
    walked: usize,
}

impl<K, V> Clone for Path<K, V> {
    fn clone(&self) -> Self {
        Path { ..*self }
    }
}

impl<K, V> Path<K, V> {
    /// Creates an unvisited path in a tree of this height.
    pub(super) fn new(height: usize) -> Self {
        let nodes = [MaybeUninit::uninit(); HEIGHT_MAX];
        Path { nodes, places: [0; HEIGHT_MAX], height, walked: height }
    }

    pub(super) fn height(&self) -> usize {
        self.height
    }

    pub(super) fn node(&self, level: usize) -> NodeRef<K, V> {
        assert!(level >= self.walked && level < self.height);
        // SAFETY: written by `go`.
        unsafe { self.nodes[level].assume_init() }
    }

    pub(super) fn place(&self, level: usize) -> usize {
        usize::from(self.places[level])
    }

    /// Sets the node and the place at `level`.
    pub(super) fn go(&mut self, level: usize, node: NodeRef<K, V>, place: usize) {
        self.nodes[level] = MaybeUninit::new(node);
        self.places[level] = place as u16;
        self.walked = level;
    }

    pub(super) fn set_place(&mut self, level: usize, place: usize) {
        self.places[level] = place as u16;
    }

    /// Extends the path from child `place(level)` to the first edge of its first leaf.
    pub(super) fn descend_first(&mut self, level: usize) {
        for level in (0..level).rev() {
            let node = self.node(level + 1).child(self.place(level + 1));
            self.go(level, node, 0);
        }
    }

    /// Extends the path from child `place(level)` to the last edge of its last leaf.
    pub(super) fn descend_last(&mut self, level: usize) {
        for level in (0..level).rev() {
            let node = self.node(level + 1).child(self.place(level + 1));
            self.go(level, node, node.len());
        }
    }

    /// Returns the entry after this edge, and moves the path to the edge after the entry.
    pub(super) fn next(&mut self) -> Option<(NodeRef<K, V>, usize)> {
        let level = (0..self.height).find(|at| self.place(*at) < self.node(*at).len())?;
        let (node, at) = (self.node(level), self.place(level));
        self.set_place(level, at + 1);
        self.descend_first(level);
        Some((node, at))
    }

    /// Returns the entry before this edge, and moves the path to the edge before the entry.
    pub(super) fn previous(&mut self) -> Option<(NodeRef<K, V>, usize)> {
        let level = (0..self.height).find(|at| self.place(*at) > 0)?;
        let (node, at) = (self.node(level), self.place(level) - 1);
        self.set_place(level, at);
        self.descend_last(level);
        Some((node, at))
    }

    /// Returns true if both paths end at the same edge: each gap between entries has one edge in
    /// the leaves.
    pub(super) fn same_end(&self, other: &Self) -> bool {
        self.node(0) == other.node(0) && self.places[0] == other.places[0]
    }
}
