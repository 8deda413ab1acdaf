//! Editing a vector through its cursor.
//!
//! All methods keep the vector valid at each point where user code runs (a source's build, an
//! iterator, a comparison), so a panic there loses nothing and frees nothing twice. Steps that can
//! fail come before any change.

use std::cmp::Ordering;
use std::ptr::NonNull;
use std::slice;

use crate::HeapError;
use crate::persist::release::release_row;
use crate::persist::{Build, Built, IterMut, Mut, PVec, Persist, Slot};

/// The first block of a growing vector has room for about this many bytes: one cache line, so that
/// small vectors don't allocate four times on their way to eight elements.
const FIRST_BLOCK_BYTES: usize = 64;

impl<'a, T: Persist> Mut<'a, PVec<T>> {
    /// Appends an element built from `source`. Amortised constant time.
    ///
    /// # Errors
    ///
    /// Returns an error when the object can't grow. The vector is unchanged then.
    ///
    /// ```
    /// use evermap::{PString, PVec, Scratch};
    ///
    /// let mut object = Scratch::<PVec<PString>>::new([""; 0])?;
    /// let mut lines = object.root_mut();
    /// lines.push("hello")?.push_str(" world")?;
    /// assert_eq!(object.root(), &["hello world"]);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn push<S>(&mut self, source: S) -> Result<Mut<'_, T>, HeapError>
    where
        T: Build<S>,
    {
        self.reserve(1)?;
        self.push_with(|slot| T::build(source, slot).map(Some))?;
        // SAFETY: the element just built.
        Ok(unsafe { Mut::from_raw(self.heap, self.first().add(self.len() - 1)) })
    }

    /// Appends the element that `fill` builds, if any; returns true if it did. There must be room
    /// for it.
    pub(in crate::persist) fn push_with<E>(
        &mut self,
        fill: impl for<'s> FnOnce(Slot<'s, T>) -> Result<Option<Built<'s, T>>, E>,
    ) -> Result<bool, E> {
        assert!(self.len() < self.capacity());
        let heap = self.heap;
        let vec = self.raw();
        // SAFETY: there is room for one more element after the last; it counts once it is built.
        let slot = unsafe { Slot::new(heap, vec.first().add(vec.len as usize)) };
        let built = fill(slot)?.is_some();
        vec.len += u64::from(built);
        Ok(built)
    }

    /// Appends an element for each source.
    ///
    /// # Errors
    ///
    /// Returns an error when the object can't grow. The vector is unchanged then: all or nothing.
    ///
    /// ```
    /// use evermap::{PString, PVec, Scratch};
    ///
    /// let mut object = Scratch::<PVec<PString>>::new(["a"])?;
    /// object.root_mut().extend("b c".split(' '))?;
    /// assert_eq!(object.root(), &["a", "b", "c"]);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn extend<I>(&mut self, sources: I) -> Result<(), HeapError>
    where
        I: IntoIterator,
        T: Build<I::Item>,
    {
        let sources = sources.into_iter();
        let before = self.len();
        let result = self.reserve(sources.size_hint().0).and_then(|()| {
            for source in sources {
                self.push(source)?;
            }
            Ok(())
        });
        if result.is_err() {
            self.truncate(before);
        }
        result
    }

    /// Inserts an element at `index` and moves the elements after it. Takes time linear in their
    /// number.
    ///
    /// # Errors
    ///
    /// Returns an error when `index` is greater than the length, or the object can't grow. The
    /// vector is unchanged then.
    ///
    /// ```
    /// use evermap::{PVec, Scratch};
    ///
    /// let mut object = Scratch::<PVec<u64>>::new([1, 3])?;
    /// object.root_mut().insert(1, 2)?;
    /// assert_eq!(object.root(), &[1, 2, 3]);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn insert<S>(&mut self, index: usize, source: S) -> Result<Mut<'_, T>, HeapError>
    where
        T: Build<S>,
    {
        let len = self.len();
        if index > len {
            return Err(HeapError::OutOfBounds {
                what: "PVec::insert",
                index: index as u64,
                len: len as u64,
            });
        }
        self.push(source)?;
        self.elements_mut()[index..].rotate_right(1);
        // SAFETY: an element of the vector.
        Ok(unsafe { Mut::from_raw(self.heap, self.first().add(index)) })
    }

    /// Reserves capacity for at least `additional` more elements.
    ///
    /// # Errors
    ///
    /// Returns an error when the object can't grow. The vector is unchanged then.
    ///
    /// ```
    /// use evermap::{PVec, Scratch};
    ///
    /// let mut object = Scratch::<PVec<u64>>::new([])?;
    /// object.root_mut().reserve(10)?;
    /// assert!(object.root().capacity() >= 10);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn reserve(&mut self, additional: usize) -> Result<(), HeapError> {
        let (len, capacity) = (self.len(), self.capacity());
        if additional <= capacity - len {
            return Ok(());
        }
        let needed = len.checked_add(additional).ok_or(OVERFLOW)?;
        let first = FIRST_BLOCK_BYTES / size_of::<T>().max(1);
        self.resize_block(needed.max(capacity.saturating_mul(2)).max(first))
    }

    /// Reserves capacity for exactly `additional` more elements, rounded up to the block's size.
    ///
    /// # Errors
    ///
    /// Returns an error when the object can't grow. The vector is unchanged then.
    ///
    /// ```
    /// use evermap::{PVec, Scratch};
    ///
    /// let mut object = Scratch::<PVec<u64>>::new([])?;
    /// object.root_mut().reserve_exact(1000)?;
    /// assert!(object.root().capacity() >= 1000);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn reserve_exact(&mut self, additional: usize) -> Result<(), HeapError> {
        let (len, capacity) = (self.len(), self.capacity());
        if additional <= capacity - len {
            return Ok(());
        }
        self.resize_block(len.checked_add(additional).ok_or(OVERFLOW)?)
    }

    /// Frees unused capacity. Elements may move.
    ///
    /// # Errors
    ///
    /// Returns an error when the smaller block can't be allocated. The vector is unchanged then.
    ///
    /// ```
    /// use evermap::{PVec, Scratch};
    ///
    /// let mut object = Scratch::<PVec<u64>>::new([1])?;
    /// object.root_mut().reserve(1000)?;
    /// object.root_mut().shrink_to_fit()?;
    /// assert!(object.root().capacity() < 1000);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn shrink_to_fit(&mut self) -> Result<(), HeapError> {
        let len = self.len();
        if len != 0 {
            return if len < self.capacity() && size_of::<T>() != 0 {
                self.resize_block(len)
            } else {
                Ok(())
            };
        }
        let heap = self.heap;
        if let Some(block) = NonNull::new(self.elements) {
            *self.raw() = PVec::new();
            // SAFETY: the vector's own block, which held no elements and is not referenced any
            // more.
            unsafe { heap.free(block.cast()) };
        }
        Ok(())
    }

    /// Releases the elements after the first `len`. The capacity is kept.
    ///
    /// ```
    /// use evermap::{PVec, Scratch};
    ///
    /// let mut object = Scratch::<PVec<u64>>::new([1, 2, 3])?;
    /// object.root_mut().truncate(1);
    /// assert_eq!(object.root(), &[1]);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn truncate(&mut self, len: usize) {
        let before = self.len();
        if len < before {
            let heap = self.heap;
            let vec = self.raw();
            vec.len = len as u64;
            // SAFETY: these were elements until the line above, and have no user any more.
            unsafe { release_row(heap, vec.first().add(len), before - len) };
        }
    }

    /// Releases all elements. The capacity is kept.
    ///
    /// ```
    /// use evermap::{PVec, Scratch};
    ///
    /// let mut object = Scratch::<PVec<u64>>::new([1, 2, 3])?;
    /// object.root_mut().clear();
    /// assert!(object.root().is_empty());
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Removes and releases the element at `index`, and moves the elements after it. Returns true
    /// if there was one. For `Copy` elements, [`remove`](Mut::remove) returns the value.
    ///
    /// ```
    /// use evermap::{PString, PVec, Scratch};
    ///
    /// let mut object = Scratch::<PVec<PString>>::new(["a", "b", "c"])?;
    /// assert!(object.root_mut().discard(1));
    /// assert_eq!(object.root(), &["a", "c"]);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn discard(&mut self, index: usize) -> bool {
        let len = self.len();
        if index >= len {
            return false;
        }
        self.elements_mut()[index..].rotate_left(1);
        self.truncate(len - 1);
        true
    }

    /// Removes and releases the element at `index`, and puts the last one in its place: constant
    /// time. Returns true if there was one.
    ///
    /// ```
    /// use evermap::{PString, PVec, Scratch};
    ///
    /// let mut object = Scratch::<PVec<PString>>::new(["a", "b", "c"])?;
    /// assert!(object.root_mut().swap_discard(0));
    /// assert_eq!(object.root(), &["c", "b"]);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn swap_discard(&mut self, index: usize) -> bool {
        let len = self.len();
        if index >= len {
            return false;
        }
        self.elements_mut().swap(index, len - 1);
        self.truncate(len - 1);
        true
    }

    /// Keeps the elements for which `keep` returns true, in order, and releases the others.
    ///
    /// ```
    /// use evermap::{PString, PVec, Scratch};
    ///
    /// let mut object = Scratch::<PVec<PString>>::new(["a", "bb", "c"])?;
    /// object.root_mut().retain(|line| line.len() == 1);
    /// assert_eq!(object.root(), &["a", "c"]);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        // Swaps instead of moves: at each call of `keep` the vector contains every element once.
        let elements = self.elements_mut();
        let mut kept = 0;
        for index in 0..elements.len() {
            if keep(&elements[index]) {
                elements.swap(kept, index);
                kept += 1;
            }
        }
        self.truncate(kept);
    }

    /// Returns a cursor to the element at `index`, if there is one.
    ///
    /// ```
    /// use evermap::{PString, PVec, Scratch};
    ///
    /// let mut object = Scratch::<PVec<PString>>::new(["a"])?;
    /// if let Some(mut line) = object.root_mut().get_mut(0) {
    ///     line.push_str("!")?;
    /// }
    /// assert_eq!(object.root(), &["a!"]);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn get_mut(&mut self, index: usize) -> Option<Mut<'_, T>> {
        self.reborrow().into_get_mut(index)
    }

    /// Like [`get_mut`](Mut::get_mut), with the full lifetime of this cursor.
    pub fn into_get_mut(self, index: usize) -> Option<Mut<'a, T>> {
        // Derived from the block's own pointer, so the element's address stays valid for a `Ptr`.
        // SAFETY: exclusive access to the vector, for `'a`, is exclusive access to its elements.
        (index < self.len()).then(|| unsafe { Mut::from_raw(self.heap, self.first().add(index)) })
    }

    /// Returns a cursor to the last element, if there is one.
    ///
    /// ```
    /// use evermap::{PVec, Scratch};
    ///
    /// let mut object = Scratch::<PVec<u64>>::new([1, 2])?;
    /// if let Some(mut last) = object.root_mut().last_mut() {
    ///     *last = 9;
    /// }
    /// assert_eq!(object.root(), &[1, 9]);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn last_mut(&mut self) -> Option<Mut<'_, T>> {
        let last = self.len().checked_sub(1)?;
        self.get_mut(last)
    }

    /// Returns cursors to all elements, in order. They may be held at the same time.
    ///
    /// ```
    /// use evermap::{PVec, Scratch};
    ///
    /// let mut object = Scratch::<PVec<u64>>::new([1, 2])?;
    /// for mut number in object.root_mut().iter_mut() {
    ///     *number *= 10;
    /// }
    /// assert_eq!(object.root(), &[10, 20]);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn iter_mut(&mut self) -> IterMut<'_, T> {
        self.reborrow().into_iter()
    }

    /// Swaps two elements. Returns `false`, and does nothing, if an index is out of bounds.
    ///
    /// ```
    /// use evermap::{PString, PVec, Scratch};
    ///
    /// let mut object = Scratch::<PVec<PString>>::new(["a", "b"])?;
    /// assert!(object.root_mut().swap(0, 1));
    /// assert_eq!(object.root(), &["b", "a"]);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn swap(&mut self, one: usize, other: usize) -> bool {
        let elements = self.elements_mut();
        let there = one.max(other) < elements.len();
        if there {
            elements.swap(one, other);
        }
        there
    }

    /// Reverses the order.
    ///
    /// ```
    /// use evermap::{PString, PVec, Scratch};
    ///
    /// let mut object = Scratch::<PVec<PString>>::new(["a", "b", "c"])?;
    /// object.root_mut().reverse();
    /// assert_eq!(object.root(), &["c", "b", "a"]);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn reverse(&mut self) {
        self.elements_mut().reverse();
    }

    /// Sorts stably. Elements are moved through a buffer in the process's own memory, so nothing is
    /// allocated in the object.
    ///
    /// ```
    /// use evermap::{PString, PVec, Scratch};
    ///
    /// let mut object = Scratch::<PVec<PString>>::new(["b", "c", "a"])?;
    /// object.root_mut().sort();
    /// assert_eq!(object.root(), &["a", "b", "c"]);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn sort(&mut self)
    where
        T: Ord,
    {
        // The comparison only gets `&T`, and `sort` leaves each element in place once even if it
        // panics, so elements that own memory can be sorted too.
        self.elements_mut().sort();
    }

    /// Sorts by a comparison function; see [`sort`](Mut::sort).
    ///
    /// ```
    /// use evermap::{PString, PVec, Scratch};
    ///
    /// let mut object = Scratch::<PVec<PString>>::new(["bb", "c"])?;
    /// object.root_mut().sort_by(|one, other| one.len().cmp(&other.len()));
    /// assert_eq!(object.root(), &["c", "bb"]);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn sort_by(&mut self, compare: impl FnMut(&T, &T) -> Ordering) {
        self.elements_mut().sort_by(compare);
    }

    /// Sorts by a key; see [`sort`](Mut::sort).
    ///
    /// ```
    /// use evermap::{PString, PVec, Scratch};
    ///
    /// let mut object = Scratch::<PVec<PString>>::new(["bb", "c"])?;
    /// object.root_mut().sort_by_key(|line| line.len());
    /// assert_eq!(object.root(), &["c", "bb"]);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn sort_by_key<K: Ord>(&mut self, key: impl FnMut(&T) -> K) {
        self.elements_mut().sort_by_key(key);
    }

    /// Returns the elements, for the methods of this module, which must not pass them on.
    pub(super) fn elements_mut(&mut self) -> &mut [T] {
        let vec = self.raw();
        // SAFETY: exclusive access to a valid vector is exclusive access to its valid elements.
        unsafe { slice::from_raw_parts_mut(vec.first().as_ptr(), vec.len as usize) }
    }

    /// Allocates a block of `capacity` elements for the vector, which must be at least its length
    /// and not zero.
    #[cold]
    fn resize_block(&mut self, capacity: usize) -> Result<(), HeapError> {
        let size = capacity
            .checked_mul(size_of::<T>())
            .filter(|size| *size > 0 && *size <= isize::MAX as usize)
            .ok_or(OVERFLOW)?;
        let heap = self.heap;
        let vec = self.raw();
        let block = match NonNull::new(vec.elements) {
            None => heap.allocate(size, align_of::<T>())?,
            // SAFETY: the vector's own block.
            Some(block) => unsafe { heap.reallocate(block.cast(), size, align_of::<T>())? },
        };
        vec.elements = block.as_ptr().cast();
        // Blocks come in size classes: the rest of this block is capacity as well.
        vec.capacity = (heap.usable_size(block) / size_of::<T>()).max(capacity) as u64;
        Ok(())
    }

    /// Appends `count` elements by copying bytes.
    ///
    /// # Safety
    ///
    /// `from` points to that many values of the type `T`, which is `Copy`.
    pub(super) unsafe fn append_bytes(
        &mut self,
        from: *const T,
        count: usize,
    ) -> Result<(), HeapError> {
        self.reserve(count)?;
        let vec = self.raw();
        // SAFETY: there is room for `count` more elements; the source can't overlap it, because
        // this cursor has exclusive access to the vector's block.
        unsafe {
            vec.first().add(vec.len as usize).as_ptr().copy_from_nonoverlapping(from, count);
        }
        vec.len += count as u64;
        Ok(())
    }
}

const OVERFLOW: HeapError = HeapError::CapacityOverflow { what: "PVec" };
