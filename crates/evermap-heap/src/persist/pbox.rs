//! Box: one value in its own block.
//!
//! The block never moves while the box owns it, so a [`Ptr`](super::Ptr) to its contents stays
//! valid. A box is eight bytes and never null. `Option<PBox<T>>` is eight bytes too, with null as
//! `None` (a guarantee of the language for a transparent wrapper of `NonNull`). It is the only
//! `Option` that can be stored: a [`Ptr`](super::Ptr) may be null itself, and a vector, string, map
//! or tree without a block has a null pointer too, so no bit pattern is left for `None` (an empty
//! value replaces it).

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;

use super::build::build_block;
use super::{Bounds, Build, Built, Description, Mut, POINTER_BYTES, Persist, Releaser, Slot};
use crate::HeapError;

/// An owned value in its own block: `Box` for objects.
///
/// It can only be built in an object, from a source of `T`. For an optional value, use
/// `Option<PBox<T>>`: `Mut<'_, Option<PBox<T>>>` has [`insert`](Mut::insert),
/// [`clear`](Mut::clear), [`as_mut`](Mut::as_mut) and [`into_mut`](Mut::into_mut).
///
/// Reading is one pointer, as with `Box`. Releasing a list or a tree of boxes works for any depth
/// without deep recursion.
///
/// ```
/// use evermap::{PBox, Persist, Scratch};
///
/// #[derive(Persist)]
/// #[repr(C)]
/// struct Tree { key: u64, left: Option<PBox<Tree>>, right: Option<PBox<Tree>> }
///
/// impl Tree {
///     fn leaf(key: u64) -> Tree { Tree { key, left: None, right: None } }
/// }
///
/// let mut object = Scratch::<Tree>::new(Tree::leaf(5))?;
/// let mut tree = object.root_mut();
/// tree.fields().left.insert(Tree::leaf(3))?;
/// assert_eq!(object.root().left.as_ref().map(|left| left.key), Some(3));
/// # Ok::<(), evermap::Error>(())
/// ```
#[repr(transparent)]
pub struct PBox<T>(NonNull<T>);

const _: () = assert!(size_of::<PBox<u64>>() == POINTER_BYTES);
const _: () = assert!(align_of::<PBox<u64>>() == POINTER_BYTES);
const _: () = assert!(size_of::<Option<PBox<u64>>>() == POINTER_BYTES);
// Like std's types, if these have a niche at all.
const _: () = assert!(size_of::<Option<PBox<u64>>>() == size_of::<Option<Box<u64>>>());

// SAFETY: a box owns its value, like `Box`.
unsafe impl<T: Send> Send for PBox<T> {}
// SAFETY: a box owns its value, like `Box`.
unsafe impl<T: Sync> Sync for PBox<T> {}

impl<T> PBox<T> {
    /// Creates a box from a block with a value in it, for the methods of this module, which put it
    /// into its slot.
    #[cfg(feature = "serde")]
    pub(super) fn owning(block: NonNull<T>) -> Self {
        PBox(block)
    }
}

impl<T> Deref for PBox<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: a box always owns a valid value (`build`), and a shared reference to the box is a
        // shared reference to this value.
        unsafe { self.0.as_ref() }
    }
}

impl<'a, T: Persist> Mut<'a, PBox<T>> {
    /// Returns a cursor to the contents of the box.
    ///
    /// ```
    /// use evermap::{PBox, Scratch};
    ///
    /// let mut object = Scratch::<PBox<u64>>::new(1)?;
    /// *object.root_mut().get_mut() += 1;
    /// assert_eq!(**object.root(), 2);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn get_mut(&mut self) -> Mut<'_, T> {
        self.reborrow().into_inner()
    }

    /// Like [`get_mut`](Mut::get_mut), with the full lifetime of this cursor.
    pub fn into_inner(mut self) -> Mut<'a, T> {
        let target = self.raw().0;
        // SAFETY: exclusive access to a box is exclusive access to the valid value it owns.
        unsafe { Mut::from_raw(self.heap, target) }
    }
}

impl<'a, T: Persist> Mut<'a, Option<PBox<T>>> {
    /// Builds a value in a new box, in place of the old contents.
    ///
    /// # Errors
    ///
    /// Returns an error when the object can't grow. The old contents are unchanged then.
    ///
    /// ```
    /// use evermap::{PBox, PString, Scratch};
    ///
    /// let mut object = Scratch::<Option<PBox<PString>>>::new(None::<&str>)?;
    /// object.root_mut().insert("hello")?.push_str(" world")?;
    /// assert!(object.root().as_ref().is_some_and(|text| **text == "hello world"));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn insert<S>(&mut self, source: S) -> Result<Mut<'_, T>, HeapError>
    where
        T: Build<S>,
    {
        let block = build_block(self.heap, source)?;
        self.set(Some(PBox(block)));
        // SAFETY: the value was just built and is accessed through this cursor only.
        Ok(unsafe { Mut::from_raw(self.heap, block) })
    }

    /// Releases the contents, if any. The box is `None` afterwards. Returns true if there were
    /// contents.
    ///
    /// ```
    /// use evermap::{PBox, Scratch};
    ///
    /// let mut object = Scratch::<Option<PBox<u64>>>::new(Some(1))?;
    /// assert!(object.root_mut().clear());
    /// assert!(object.root().is_none());
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn clear(&mut self) -> bool {
        let was_some = self.is_some();
        self.set(None);
        was_some
    }

    /// Returns a cursor to the contents, if any.
    ///
    /// ```
    /// use evermap::{PBox, Scratch};
    ///
    /// let mut object = Scratch::<Option<PBox<u64>>>::new(Some(1))?;
    /// if let Some(mut number) = object.root_mut().as_mut() {
    ///     *number += 1;
    /// }
    /// assert_eq!(object.root().as_deref(), Some(&2));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn as_mut(&mut self) -> Option<Mut<'_, T>> {
        self.reborrow().into_mut()
    }

    /// Like [`as_mut`](Mut::as_mut), with the full lifetime of this cursor: to walk a list.
    pub fn into_mut(mut self) -> Option<Mut<'a, T>> {
        let target = self.raw().as_ref().map(|owned| owned.0)?;
        // SAFETY: exclusive access to a box is exclusive access to the valid value it owns.
        Some(unsafe { Mut::from_raw(self.heap, target) })
    }
}

impl<T: Build<S>, S> Build<S> for PBox<T> {
    fn build<'a>(source: S, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
        let block = build_block(slot.heap, source)?;
        Ok(slot.write(PBox(block)))
    }
}

impl<T: Build<S>, S> Build<Option<S>> for Option<PBox<T>> {
    fn build<'a>(source: Option<S>, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
        let value = match source {
            Some(source) => Some(PBox(build_block(slot.heap, source)?)),
            None => None,
        };
        Ok(slot.write(value))
    }
}

// SAFETY: one pointer to a block that the box owns. No safe code creates a box outside an object:
// it has no constructor, and `Build` writes it into its slot only.
unsafe impl<T: Persist> Persist for PBox<T> {
    type Fields<'a> = Mut<'a, Self>;
    const OWNS: bool = true;

    fn fields(this: Mut<'_, Self>) -> Mut<'_, Self> {
        this
    }

    fn describe(description: &mut Description) {
        description.leaf("PBox", &[T::describe]);
    }

    unsafe fn release(this: NonNull<Self>, releaser: &mut Releaser<'_>) {
        // SAFETY: a valid box owns its block, which holds one valid `T`, and gives it up here.
        unsafe { releaser.block_of(this.as_ref().0, 1) }
    }

    unsafe fn is_bounded(this: NonNull<Self>, bounds: &Bounds<'_>) -> bool {
        // SAFETY: any bytes are a raw pointer, and the caller lets them be read.
        bounds.contain_row(unsafe { this.cast::<*const T>().read() }, 1)
    }
}

// SAFETY: eight bytes: null or a box.
unsafe impl<T: Persist> Persist for Option<PBox<T>> {
    type Fields<'a> = Mut<'a, Self>;
    const OWNS: bool = true;

    fn fields(this: Mut<'_, Self>) -> Mut<'_, Self> {
        this
    }

    fn describe(description: &mut Description) {
        description.leaf("Option", &[PBox::<T>::describe]);
    }

    unsafe fn release(this: NonNull<Self>, releaser: &mut Releaser<'_>) {
        // SAFETY: null, or a valid box, which owns its block with one valid `T` and gives it up
        // here.
        unsafe {
            if let Some(owned) = this.as_ref() {
                releaser.block_of(owned.0, 1);
            }
        }
    }

    unsafe fn is_bounded(this: NonNull<Self>, bounds: &Bounds<'_>) -> bool {
        // SAFETY: any bytes are a raw pointer, and the caller lets them be read.
        let pointer = unsafe { this.cast::<*const T>().read() };
        pointer.is_null() || bounds.contain_row(pointer, 1)
    }
}

impl<T: fmt::Debug> fmt::Debug for PBox<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, formatter)
    }
}

impl<T: PartialEq> PartialEq for PBox<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq> Eq for PBox<T> {}

impl<T> Borrow<T> for PBox<T> {
    fn borrow(&self) -> &T {
        self
    }
}

impl<T> AsRef<T> for PBox<T> {
    fn as_ref(&self) -> &T {
        self
    }
}
