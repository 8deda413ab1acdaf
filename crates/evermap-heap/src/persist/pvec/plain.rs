//! Editing a vector of elements that own nothing: these may be copied in bulk and returned by
//! value.
//!
//! Elements are returned by value only if they are `Copy`, which for a [`Persist`] type means that
//! they own nothing, and as `&mut` only if they are [`Plain`].

use crate::HeapError;
use crate::persist::{Mut, PVec, Persist, Plain};

// The bounds are on the methods, so that the compiler names the missing one.
impl<T: Persist> Mut<'_, PVec<T>> {
    /// Appends a copy of each element, as fast as a plain copy.
    ///
    /// # Errors
    ///
    /// Returns an error when the object can't grow. The vector is unchanged then.
    ///
    /// ```
    /// use evermap::{PVec, Scratch};
    ///
    /// let mut object = Scratch::<PVec<u8>>::new(*b"ab")?;
    /// object.root_mut().extend_from_slice(b"cd")?;
    /// assert_eq!(object.root(), b"abcd");
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn extend_from_slice(&mut self, elements: &[T]) -> Result<(), HeapError>
    where
        T: Copy,
    {
        // SAFETY: valid elements of the same `Copy` type.
        unsafe { self.append_bytes(elements.as_ptr(), elements.len()) }
    }

    /// Sets the length to `len` and fills new places with copies of `value`.
    ///
    /// # Errors
    ///
    /// Returns an error when the object can't grow. The vector is unchanged then.
    ///
    /// ```
    /// use evermap::{PVec, Scratch};
    ///
    /// let mut object = Scratch::<PVec<u64>>::new([1])?;
    /// object.root_mut().resize(3, 7)?;
    /// assert_eq!(object.root(), &[1, 7, 7]);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn resize(&mut self, len: usize, value: T) -> Result<(), HeapError>
    where
        T: Copy,
    {
        let before = self.len();
        if len <= before {
            self.truncate(len);
            return Ok(());
        }
        self.reserve(len - before)?;
        let vec = self.raw();
        for index in before..len {
            // SAFETY: there is room up to `len`.
            unsafe { vec.first().add(index).write(value) };
        }
        vec.len = len as u64;
        Ok(())
    }

    /// Removes the last element and returns it.
    ///
    /// ```
    /// use evermap::{PVec, Scratch};
    ///
    /// let mut object = Scratch::<PVec<u64>>::new([1, 2])?;
    /// assert_eq!(object.root_mut().pop(), Some(2));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn pop(&mut self) -> Option<T>
    where
        T: Copy,
    {
        let last = *self.last()?;
        self.raw().len -= 1;
        Some(last)
    }

    /// Removes the element at `index` and returns it. Moves the elements after it.
    ///
    /// ```
    /// use evermap::{PVec, Scratch};
    ///
    /// let mut object = Scratch::<PVec<u64>>::new([1, 2, 3])?;
    /// assert_eq!(object.root_mut().remove(0), Some(1));
    /// assert_eq!(object.root(), &[2, 3]);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn remove(&mut self, index: usize) -> Option<T>
    where
        T: Copy,
    {
        let element = *self.get(index)?;
        self.discard(index);
        Some(element)
    }

    /// Removes the element at `index` and returns it. Puts the last one in its place.
    ///
    /// ```
    /// use evermap::{PVec, Scratch};
    ///
    /// let mut object = Scratch::<PVec<u64>>::new([1, 2, 3])?;
    /// assert_eq!(object.root_mut().swap_remove(0), Some(1));
    /// assert_eq!(object.root(), &[3, 2]);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn swap_remove(&mut self, index: usize) -> Option<T>
    where
        T: Copy,
    {
        let element = *self.get(index)?;
        self.swap_discard(index);
        Some(element)
    }

    /// Returns the elements as a mutable slice.
    ///
    /// ```
    /// use evermap::{PVec, Scratch};
    ///
    /// let mut object = Scratch::<PVec<u64>>::new([3, 1, 2])?;
    /// object.root_mut().as_mut_slice().sort_unstable();
    /// assert_eq!(object.root(), &[1, 2, 3]);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn as_mut_slice(&mut self) -> &mut [T]
    where
        T: Plain,
    {
        // `Plain` elements hold no pointers: they may be swapped and overwritten.
        self.elements_mut()
    }
}
