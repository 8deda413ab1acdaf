//! The growable array: its layout, reading and building. Editing is in `edit`.
//!
//! Layout (24 bytes, `repr(C)`): a pointer to the elements, their number, and the capacity. An
//! empty vector without a block is 24 zero bytes, so zeroed memory is a valid empty vector.
//! Invariants: the first `len` elements are valid; `len <= capacity`; the pointer is null if and
//! only if no block is owned, and then `capacity` is 0 (zero-sized elements never own a block).

mod edit;
mod plain;

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::ops::{Deref, Range};
use std::ptr::{self, NonNull};
use std::slice;

use super::{Bounds, Build, Built, Description, FromIter, Mut, Persist, Releaser, Slot};
use crate::HeapError;
use crate::alloc::Heap;

/// A growable array: `Vec` for objects.
///
/// A vector dereferences to a slice for reading. [`PVec::new`] returns an empty one. Contents come
/// from [`Build`] sources and from the methods of its cursor, `Mut<'_, PVec<T>>`:
/// [`push`](Mut::push), [`extend`](Mut::extend), [`insert`](Mut::insert),
/// [`get_mut`](Mut::get_mut), [`iter_mut`](Mut::iter_mut), [`retain`](Mut::retain),
/// [`sort_by`](Mut::sort_by) and so on.
///
/// Growth doubles the capacity, so pushing takes amortised constant time; elements move when it
/// grows. A vector never shrinks by itself: see [`shrink_to_fit`](Mut::shrink_to_fit).
///
/// ```
/// use evermap::{PString, PVec, Scratch};
///
/// let mut object = Scratch::<PVec<PString>>::new(["one", "two"])?;
/// let mut lines = object.root_mut();
/// lines.push("three")?;
/// if let Some(mut first) = lines.get_mut(0) {
///     first.push_str("!")?;
/// }
/// assert_eq!(object.root(), &["one!", "two", "three"]);
/// assert!(object.root().iter().any(|line| line == "two"));
/// # Ok::<(), evermap::Error>(())
/// ```
#[repr(C)]
pub struct PVec<T> {
    pub(super) elements: *mut T,
    pub(super) len: u64,
    pub(super) capacity: u64,
}

const _: () = assert!(size_of::<PVec<u8>>() == 24 && align_of::<PVec<u8>>() == 8);
const _: () = assert!(std::mem::offset_of!(PVec<u8>, elements) == 0);
const _: () = assert!(std::mem::offset_of!(PVec<u8>, len) == 8);
const _: () = assert!(std::mem::offset_of!(PVec<u8>, capacity) == 16);

// SAFETY: a vector owns its elements, like `Vec`.
unsafe impl<T: Send> Send for PVec<T> {}
// SAFETY: a vector owns its elements, like `Vec`.
unsafe impl<T: Sync> Sync for PVec<T> {}

impl<T> PVec<T> {
    /// Returns an empty vector, which owns nothing.
    ///
    /// ```
    /// use evermap::PVec;
    ///
    /// assert!(PVec::<u64>::new().is_empty());
    /// ```
    pub const fn new() -> Self {
        PVec { elements: ptr::null_mut(), len: 0, capacity: 0 }
    }

    /// Returns the elements.
    ///
    /// ```
    /// use evermap::{PVec, Scratch};
    ///
    /// let object = Scratch::<PVec<u8>>::new([1, 2, 3])?;
    /// assert_eq!(object.root().as_slice(), [1, 2, 3]);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: `first` is aligned, the first `len` elements are valid (the file's invariant),
        // and a shared reference to the vector is a shared reference to its elements.
        unsafe { slice::from_raw_parts(self.first().as_ptr(), self.len as usize) }
    }

    /// Returns the number of elements that fit before the vector has to grow.
    ///
    /// ```
    /// use evermap::{PVec, Scratch};
    ///
    /// let mut object = Scratch::<PVec<u64>>::new([])?;
    /// object.root_mut().reserve(100)?;
    /// assert!(object.root().capacity() >= 100);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub const fn capacity(&self) -> usize {
        if size_of::<T>() == 0 { usize::MAX } else { self.capacity as usize }
    }

    /// Returns the address of the first element, or any aligned address if there is no block.
    pub(super) fn first(&self) -> NonNull<T> {
        NonNull::new(self.elements).unwrap_or(NonNull::dangling())
    }
}

impl<T> Deref for PVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.as_slice()
    }
}

// SAFETY: 24 bytes of fixed layout; owns the block and the elements in it. A vector that owns a
// block is created only inside an object: `new` returns an empty one, and there is no `Clone`.
unsafe impl<T: Persist> Persist for PVec<T> {
    type Fields<'a> = Mut<'a, Self>;
    const OWNS: bool = true;

    fn fields(this: Mut<'_, Self>) -> Mut<'_, Self> {
        this
    }

    fn describe(description: &mut Description) {
        description.leaf("PVec", &[T::describe]);
    }

    unsafe fn release(this: NonNull<Self>, releaser: &mut Releaser<'_>) {
        // SAFETY: a valid vector owns its block, if any, with `len` valid elements, and gives it up
        // here. (Zero-sized elements own nothing.)
        unsafe {
            let this = this.as_ref();
            if let Some(block) = NonNull::new(this.elements) {
                releaser.block_of(block, this.len as usize);
            }
        }
    }

    unsafe fn is_bounded(this: NonNull<Self>, bounds: &Bounds<'_>) -> bool {
        // SAFETY: any bytes are a pointer and two numbers, and the caller lets them be read.
        let PVec { elements, len, capacity } = unsafe { this.as_ref() };
        match (elements.is_null(), size_of::<T>()) {
            (_, 0) => true,
            (true, _) => *len == 0 && *capacity == 0,
            (false, _) => *len <= *capacity && bounds.contain_row(*elements, *capacity),
        }
    }
}

impl<T: Persist> Build<PVec<T>> for PVec<T> {
    fn build<'a>(source: PVec<T>, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
        Ok(slot.write(source))
    }
}

impl<T, I> Build<FromIter<I>> for PVec<T>
where
    I: Iterator,
    T: Build<I::Item>,
{
    fn build<'a>(source: FromIter<I>, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
        slot.write_with(PVec::new(), |mut vec| vec.extend(source.0))
    }
}

impl<T: Build<S>, S, const N: usize> Build<[S; N]> for PVec<T> {
    fn build<'a>(source: [S; N], slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
        slot.write_with(PVec::new(), |mut vec| {
            vec.reserve_exact(N)?;
            vec.extend(source)
        })
    }
}

impl<T: Build<S>, S> Build<Vec<S>> for PVec<T> {
    fn build<'a>(source: Vec<S>, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
        slot.write_with(PVec::new(), |mut vec| {
            vec.reserve_exact(source.len())?;
            if T::BITWISE.holds() {
                // SAFETY: `BITWISE` says that `S` and `T` are the same `Copy` type.
                unsafe { vec.append_bytes(source.as_ptr().cast(), source.len()) }
            } else {
                vec.extend(source)
            }
        })
    }
}

impl<T: Build<S>, S: Clone> Build<&[S]> for PVec<T> {
    fn build<'a>(source: &[S], slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
        slot.write_with(PVec::new(), |mut vec| {
            vec.reserve_exact(source.len())?;
            if T::BITWISE.holds() {
                // SAFETY: `BITWISE` says that `S` and `T` are the same `Copy` type.
                unsafe { vec.append_bytes(source.as_ptr().cast(), source.len()) }
            } else {
                vec.extend(source.iter().cloned())
            }
        })
    }
}

impl<T: Build<S>, S: Clone, const N: usize> Build<&[S; N]> for PVec<T> {
    fn build<'a>(source: &[S; N], slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
        slot.build(source.as_slice())
    }
}

impl<T: Build<S>, S: Clone> Build<&Vec<S>> for PVec<T> {
    fn build<'a>(source: &Vec<S>, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
        slot.build(source.as_slice())
    }
}

impl<T> Default for PVec<T> {
    fn default() -> Self {
        PVec::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for PVec<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(formatter)
    }
}

impl<T: PartialEq<U>, U> PartialEq<PVec<U>> for PVec<T> {
    fn eq(&self, other: &PVec<U>) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl<T: PartialEq<U>, U> PartialEq<[U]> for PVec<T> {
    fn eq(&self, other: &[U]) -> bool {
        self.as_slice() == other
    }
}

impl<T: PartialEq<U>, U, const N: usize> PartialEq<[U; N]> for PVec<T> {
    fn eq(&self, other: &[U; N]) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl<T: PartialEq<U>, U> PartialEq<Vec<U>> for PVec<T> {
    fn eq(&self, other: &Vec<U>) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl<T: Eq> Eq for PVec<T> {}

impl<T: PartialOrd> PartialOrd for PVec<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.as_slice().partial_cmp(other.as_slice())
    }
}

impl<T: Ord> Ord for PVec<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_slice().cmp(other.as_slice())
    }
}

impl<T: Hash> Hash for PVec<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}

impl<T> Borrow<[T]> for PVec<T> {
    fn borrow(&self) -> &[T] {
        self
    }
}

impl<T> AsRef<[T]> for PVec<T> {
    fn as_ref(&self) -> &[T] {
        self
    }
}

impl<'a, T> IntoIterator for &'a PVec<T> {
    type Item = &'a T;
    type IntoIter = slice::Iter<'a, T>;

    fn into_iter(self) -> slice::Iter<'a, T> {
        self.iter()
    }
}

impl<'a, T> IntoIterator for Mut<'a, PVec<T>> {
    type Item = Mut<'a, T>;
    type IntoIter = IterMut<'a, T>;

    fn into_iter(self) -> IterMut<'a, T> {
        IterMut {
            heap: self.heap,
            first: self.first(),
            left: 0..self.len(),
            exclusive: PhantomData,
        }
    }
}

/// Cursors to the elements of a [`PVec`], in order: see [`Mut::iter_mut`].
///
/// ```
/// use evermap::{PString, PVec, Scratch};
///
/// let mut object = Scratch::<PVec<PString>>::new(["a", "b"])?;
/// for mut line in object.root_mut() {
///     line.push_str(".")?;
/// }
/// assert_eq!(object.root(), &["a.", "b."]);
/// # Ok::<(), evermap::Error>(())
/// ```
pub struct IterMut<'a, T> {
    heap: &'a Heap,
    // The block's own pointer, not a slice: the address of an element stays valid for a `Ptr`.
    first: NonNull<T>,
    left: Range<usize>,
    exclusive: PhantomData<&'a mut [T]>,
}

// SAFETY: like `slice::IterMut`, and the heap is `Sync`.
unsafe impl<T: Send> Send for IterMut<'_, T> {}
// SAFETY: like `slice::IterMut`, and the heap is `Sync`.
unsafe impl<T: Sync> Sync for IterMut<'_, T> {}

impl<'a, T> IterMut<'a, T> {
    fn cursor(&self, index: usize) -> Mut<'a, T> {
        // SAFETY: an element of the vector, to which the iterator has exclusive access; each index
        // is taken from `left` once.
        unsafe { Mut::from_raw(self.heap, self.first.add(index)) }
    }
}

impl<'a, T> Iterator for IterMut<'a, T> {
    type Item = Mut<'a, T>;

    fn next(&mut self) -> Option<Mut<'a, T>> {
        let index = self.left.next()?;
        Some(self.cursor(index))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }
}

impl<T> DoubleEndedIterator for IterMut<'_, T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let index = self.left.next_back()?;
        Some(self.cursor(index))
    }
}

impl<T> ExactSizeIterator for IterMut<'_, T> {}
impl<T> FusedIterator for IterMut<'_, T> {}
