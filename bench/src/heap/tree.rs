//! The work: a balanced search tree of nodes of 64 bytes, allocated and linked in preorder, and
//! walked in preorder. What allocates is a type parameter, so that no call is indirect for one
//! and direct for another.

use std::ptr::null_mut;

pub const NODE_BYTES: usize = size_of::<Node>();

/// 64 bytes, linked by raw pointers.
#[repr(C)]
pub struct Node {
    pub key: u64,
    pub left: *mut Node,
    pub right: *mut Node,
    pub value: u64,
    pub pad: [u64; 4],
}
const _: () = assert!(NODE_BYTES == 64);

/// One thread's way to an allocator.
pub trait Allocate {
    /// At least `bytes` bytes, aligned like a node; null for none.
    fn allocate(&mut self, bytes: usize) -> *mut u8;

    /// Takes a block back.
    ///
    /// # Safety
    /// The block came from this allocator, and nothing refers to it.
    unsafe fn free(&mut self, block: *mut u8);
}

/// What threads allocate from.
pub trait Allocator: Sync {
    type Thread<'a>: Allocate
    where
        Self: 'a;

    fn thread(&self) -> Self::Thread<'_>;
}

/// The value of a key: what a walk adds up.
pub fn value_of(key: u64) -> u64 {
    key.wrapping_mul(3)
}

/// What the values of all keys below `nodes` add up to.
pub fn sum_of(nodes: u64) -> u64 {
    (0..nodes).map(value_of).fold(0, u64::wrapping_add)
}

/// The keys of a balanced tree in preorder, to those that keep values under keys.
pub fn preorder<E>(
    first: u64,
    count: u64,
    put: &mut impl FnMut(u64) -> Result<(), E>,
) -> Result<(), E> {
    if count == 0 {
        return Ok(());
    }
    let left = count / 2;
    put(first + left)?;
    preorder(first, left, put)?;
    preorder(first + left + 1, count - left - 1, put)
}

/// A tree to be handed from thread to thread.
struct Tree(*mut Node);

// SAFETY: the nodes are the tree's own, and one thread has it at a time.
unsafe impl Send for Tree {}

/// Builds the tree of all keys below `nodes`; with two threads, each makes half of it.
pub fn build<A: Allocator>(allocator: &A, nodes: u64, threads: usize) -> *mut Node {
    if threads == 1 {
        return subtree(&mut allocator.thread(), 0, nodes);
    }
    let left = nodes / 2;
    let root = new_node(&mut allocator.thread(), left);
    let (first, second) = std::thread::scope(|scope| {
        let second =
            scope.spawn(|| Tree(subtree(&mut allocator.thread(), left + 1, nodes - left - 1)));
        let first = subtree(&mut allocator.thread(), 0, left);
        (first, second.join().map_or(null_mut(), |tree| tree.0))
    });
    // SAFETY: the node is new, and this thread's.
    unsafe { ((*root).left, (*root).right) = (first, second) };
    root
}

fn subtree<T: Allocate>(thread: &mut T, first: u64, count: u64) -> *mut Node {
    if count == 0 {
        return null_mut();
    }
    let left = count / 2;
    let node = new_node(thread, first + left);
    // SAFETY: the node is new, and this thread's.
    unsafe {
        (*node).left = subtree(thread, first, left);
        (*node).right = subtree(thread, first + left + 1, count - left - 1);
    }
    node
}

fn new_node<T: Allocate>(thread: &mut T, key: u64) -> *mut Node {
    let node: *mut Node = thread.allocate(NODE_BYTES).cast();
    assert!(!node.is_null(), "no memory for a node");
    let (left, right) = (null_mut(), null_mut());
    // SAFETY: the block is new and as large as a node.
    unsafe { node.write(Node { key, left, right, value: value_of(key), pad: [key; 4] }) };
    node
}

/// Adds the values up, in preorder.
///
/// # Safety
/// `node` is null or the root of a tree that nobody changes.
pub unsafe fn walk(node: *const Node) -> u64 {
    if node.is_null() {
        return 0;
    }
    // SAFETY: the caller promised it for this node and those below.
    unsafe {
        let sum = (*node).value.wrapping_add(walk((*node).left));
        sum.wrapping_add(walk((*node).right))
    }
}

/// All nodes, in preorder.
///
/// # Safety
/// As [`walk`].
pub unsafe fn collect(node: *mut Node, nodes: &mut Vec<*mut Node>) {
    if !node.is_null() {
        nodes.push(node);
        // SAFETY: as in `walk`.
        unsafe {
            collect((*node).left, nodes);
            collect((*node).right, nodes);
        }
    }
}
