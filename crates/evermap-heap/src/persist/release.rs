//! Frees what values own.
//!
//! Values in an object are not dropped. They are *released* by the type's own [`Persist::release`],
//! which frees blocks of the object's heap. Structures may be deep (a list of a million nodes is a
//! chain of a million boxes), so a release must not recurse with the data: beyond [`DEPTH_MAX`]
//! levels a block is put on a work list, which the outermost call processes. The stack stays
//! bounded. The work list has one entry for each pending block, so it is short for lists and as
//! long as the widest level for trees. It lies in the process's heap and is not allocated at all
//! for shallow structures.

use std::ptr::NonNull;

use super::Persist;
use crate::alloc::Heap;

/// Levels of nested blocks released by plain recursion before the work list takes over. One level
/// is a few stack frames of about 100 bytes. 64 of them are far below any thread's limit, and make
/// the cost of the work list negligible in long chains.
const DEPTH_MAX: u32 = 64;

type ReleaseBlock = unsafe fn(NonNull<u8>, usize, &mut Releaser<'_>);

/// Context of [`Persist::release`]: the heap to which memory is returned, and the pending blocks.
///
/// Only needed to implement [`Persist`] by hand, which passes it on to the fields' own `release`.
///
/// ```
/// use std::ptr::NonNull;
/// use evermap::{Description, Mut, PString, Persist, Releaser};
///
/// #[repr(transparent)]
/// struct Name(PString);
///
/// // SAFETY: everything is passed on to the only field, whose layout this type has.
/// unsafe impl Persist for Name {
///     type Fields<'a> = Mut<'a, Self>;
///     const OWNS: bool = PString::OWNS;
///     fn fields(this: Mut<'_, Self>) -> Mut<'_, Self> { this }
///     fn describe(description: &mut Description) { PString::describe(description) }
///     unsafe fn release(this: NonNull<Self>, releaser: &mut Releaser<'_>) {
///         // SAFETY: `repr(transparent)`; the rest is the caller's promise.
///         unsafe { PString::release(this.cast(), releaser) }
///     }
/// }
/// ```
pub struct Releaser<'h> {
    heap: &'h Heap,
    depth: u32,
    waiting: Vec<Waiting>,
}

struct Waiting {
    block: NonNull<u8>,
    len: usize,
    release: ReleaseBlock,
}

/// Releases one value and everything it owns, directly or indirectly.
///
/// # Safety
///
/// `target` is a valid value in `heap`'s object without other users. It is overwritten or freed
/// before it is used again.
pub unsafe fn release_value<T: Persist>(heap: &Heap, target: NonNull<T>) {
    // SAFETY: one value is a row of one, and the caller guarantees that it is valid and unused.
    unsafe { release_row(heap, target, 1) }
}

/// Releases `len` adjacent values. Their own memory stays.
///
/// # Safety
///
/// The values are valid, lie in `heap`'s object and have no other users. They are overwritten or
/// freed before they are used again.
pub(super) unsafe fn release_row<T: Persist>(heap: &Heap, first: NonNull<T>, len: usize) {
    if !T::OWNS {
        return;
    }
    let mut releaser = Releaser::new(heap);
    for index in 0..len {
        // SAFETY: the value is one of the valid, unused values that the caller guarantees.
        unsafe { T::release(first.add(index), &mut releaser) };
    }
    releaser.finish();
}

impl<'h> Releaser<'h> {
    pub(super) fn new(heap: &'h Heap) -> Self {
        Releaser { heap, depth: 0, waiting: Vec::new() }
    }

    /// Releases the pending blocks, and those that become pending in turn.
    pub(super) fn finish(mut self) {
        while let Some(Waiting { block, len, release }) = self.waiting.pop() {
            // SAFETY: the caller of `block_with` guaranteed that this call is sound until `finish`
            // returns.
            unsafe { release(block, len, &mut self) };
        }
    }

    /// Releases a block with `len` adjacent values of type `T` and frees it, now or later.
    ///
    /// # Safety
    ///
    /// The block came from this object's heap, its owner is giving it up, and the values are valid.
    pub(super) unsafe fn block_of<T: Persist>(&mut self, block: NonNull<T>, len: usize) {
        if !T::OWNS {
            // SAFETY: the owner gives the block up, and its values own nothing.
            unsafe { self.free(block.cast()) };
            return;
        }
        // SAFETY: the caller gives the block up with valid values, and `release_elements::<T>`
        // releases them.
        unsafe { self.block_with(block.cast(), len, release_elements::<T>) }
    }

    /// Calls `release(block, len, self)`, now or later.
    ///
    /// # Safety
    ///
    /// The call is sound at any time until `finish` returns.
    pub(super) unsafe fn block_with(
        &mut self,
        block: NonNull<u8>,
        len: usize,
        release: ReleaseBlock,
    ) {
        if self.depth < DEPTH_MAX {
            self.depth += 1;
            // SAFETY: the caller guarantees that this call is sound.
            unsafe { release(block, len, self) };
            self.depth -= 1;
        } else {
            self.waiting.push(Waiting { block, len, release });
        }
    }

    /// Frees a block.
    ///
    /// # Safety
    ///
    /// It came from this object's heap and its owner is giving it up.
    pub(super) unsafe fn free(&mut self, block: NonNull<u8>) {
        // SAFETY: the caller guarantees a block of this heap that its owner gives up.
        unsafe { self.heap.free(block) }
    }
}

unsafe fn release_elements<T: Persist>(
    block: NonNull<u8>,
    len: usize,
    releaser: &mut Releaser<'_>,
) {
    let first = block.cast::<T>();
    for index in 0..len {
        // SAFETY: the caller of `block_of` guaranteed `len` valid adjacent values.
        unsafe { T::release(first.add(index), releaser) };
    }
    // SAFETY: the block is given up, and its values were just released.
    unsafe { releaser.free(block) };
}
