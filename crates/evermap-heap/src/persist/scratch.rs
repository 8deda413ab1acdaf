//! An object that isn't stored, for tests and examples.

use std::fmt;
use std::ptr::NonNull;

use super::build::build_block;
use super::{Build, Mut, Persist, release_value};
use crate::HeapError;
use crate::alloc::Heap;

/// An object in anonymous memory, gone when dropped.
///
/// It returns the same [`Mut`] as a session, so code that edits persistent types can be tested and
/// tried out without a store.
///
/// ```
/// use evermap::{Mut, PString, PVec, Scratch};
///
/// fn greet(mut lines: Mut<'_, PVec<PString>>) -> Result<(), evermap::Error> {
///     lines.push("hello")?;
///     Ok(())
/// }
///
/// let mut object = Scratch::<PVec<PString>>::new(PVec::new())?;
/// greet(object.root_mut())?;
/// assert_eq!(object.root(), &["hello"]);
/// # Ok::<(), evermap::Error>(())
/// ```
pub struct Scratch<T: Persist> {
    root: NonNull<T>,
    heap: Heap,
}

impl<T: Persist> Scratch<T> {
    /// Creates an object and builds its root from `source`.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no memory.
    ///
    /// ```
    /// let object = evermap::Scratch::<u64>::new(7)?;
    /// assert_eq!(*object.root(), 7);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn new<S>(source: S) -> Result<Self, HeapError>
    where
        T: Build<S>,
    {
        Self::in_heap(Heap::anonymous()?, source)
    }

    pub(super) fn in_heap<S>(heap: Heap, source: S) -> Result<Self, HeapError>
    where
        T: Build<S>,
    {
        let root = build_block(&heap, source)?;
        Ok(Scratch { root, heap })
    }

    /// Returns the root, for reading.
    ///
    /// ```
    /// let object = evermap::Scratch::<u64>::new(7)?;
    /// assert_eq!(*object.root(), 7);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn root(&self) -> &T {
        // SAFETY: built in `in_heap`, and lent for the borrow of the object.
        unsafe { self.root.as_ref() }
    }

    /// Returns the root, for editing.
    ///
    /// ```
    /// let mut object = evermap::Scratch::<u64>::new(7)?;
    /// *object.root_mut() += 1;
    /// assert_eq!(*object.root(), 8);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn root_mut(&mut self) -> Mut<'_, T> {
        // SAFETY: a valid value of this heap's object, exclusively borrowed with it.
        unsafe { Mut::from_raw(&self.heap, self.root) }
    }

    #[cfg(test)]
    pub(super) fn heap(&self) -> &Heap {
        &self.heap
    }

    /// Ends the object and returns its heap, which should be empty.
    #[cfg(test)]
    pub(super) fn close(self) -> Heap {
        let mut this = std::mem::ManuallyDrop::new(self);
        this.release();
        // SAFETY: `this` isn't dropped, so the heap is moved out once.
        unsafe { std::ptr::read(&this.heap) }
    }

    fn release(&mut self) {
        // SAFETY: called once, at the object's end; the root is valid until here and not borrowed
        // any more.
        unsafe {
            release_value(&self.heap, self.root);
            self.heap.free(self.root.cast());
        }
    }
}

impl<T: Persist> Drop for Scratch<T> {
    fn drop(&mut self) {
        self.release();
    }
}

impl<T: Persist + fmt::Debug> fmt::Debug for Scratch<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.root().fmt(formatter)
    }
}
