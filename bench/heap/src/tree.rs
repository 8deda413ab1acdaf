//! Tree to build: a balanced search tree of nodes of 64 bytes, allocated, linked and walked in
//! preorder. The allocator is a type parameter, so that calls are direct for all allocators.

use std::ptr::null_mut;

pub const NODE_BYTES: usize = size_of::<Node>();

/// Node of 64 bytes, linked by raw pointers.
#[repr(C)]
pub struct Node {
    pub key: u64,
    pub left: *mut Node,
    pub right: *mut Node,
    pub value: u64,
    pub pad: [u64; 4],
}
const _: () = assert!(NODE_BYTES == 64);

/// One thread's access to an allocator.
pub trait Allocate {
    /// Allocates at least `bytes` bytes, aligned like a node; null on failure.
    fn allocate(&mut self, bytes: usize) -> *mut u8;

    /// Frees a block.
    ///
    /// # Safety
    /// The block came from this allocator, and no reference to it remains.
    unsafe fn free(&mut self, block: *mut u8);
}

/// Allocator that threads share.
pub trait Allocator: Sync {
    type Thread<'a>: Allocate
    where
        Self: 'a;

    fn thread(&self) -> Self::Thread<'_>;
}

/// Value of a key, which a walk adds up.
pub fn value_of(key: u64) -> u64 {
    key.wrapping_mul(3)
}

/// Sum of the values of all keys below `nodes`.
pub fn sum_of(nodes: u64) -> u64 {
    (0..nodes).map(value_of).fold(0, u64::wrapping_add)
}

/// Calls `put` with the keys of a balanced tree in preorder, for key-value stores.
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

/// Tree that is passed between threads.
struct Tree(*mut Node);

// SAFETY: the nodes belong to the tree, and only one thread has it at a time.
unsafe impl Send for Tree {}

/// Builds the tree of all keys below `nodes`; with two threads, each builds half of it.
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
    // SAFETY: the node is new, and only this thread has it.
    unsafe { ((*root).left, (*root).right) = (first, second) };
    root
}

fn subtree<T: Allocate>(thread: &mut T, first: u64, count: u64) -> *mut Node {
    if count == 0 {
        return null_mut();
    }
    let left = count / 2;
    let node = new_node(thread, first + left);
    // SAFETY: the node is new, and only this thread has it.
    unsafe {
        (*node).left = subtree(thread, first, left);
        (*node).right = subtree(thread, first + left + 1, count - left - 1);
    }
    node
}

fn new_node<T: Allocate>(thread: &mut T, key: u64) -> *mut Node {
    let node: *mut Node = thread.allocate(NODE_BYTES).cast();
    assert!(!node.is_null(), "out of memory for a node");
    let (left, right) = (null_mut(), null_mut());
    // SAFETY: the block is new and has a node's size.
    unsafe { node.write(Node { key, left, right, value: value_of(key), pad: [key; 4] }) };
    node
}

/// Adds up the values, in preorder.
///
/// # Safety
/// `node` is null or the root of a tree that does not change during the call.
pub unsafe fn walk(node: *const Node) -> u64 {
    if node.is_null() {
        return 0;
    }
    // SAFETY: the caller guarantees this for `node` and all nodes below it.
    unsafe {
        let sum = (*node).value.wrapping_add(walk((*node).left));
        sum.wrapping_add(walk((*node).right))
    }
}

/// Collects all nodes, in preorder.
///
/// # Safety
/// `node` is null or the root of a tree that does not change during the call.
pub unsafe fn collect(node: *mut Node, nodes: &mut Vec<*mut Node>) {
    if !node.is_null() {
        nodes.push(node);
        // SAFETY: the caller guarantees this for `node` and all nodes below it.
        unsafe {
            collect((*node).left, nodes);
            collect((*node).right, nodes);
        }
    }
}
