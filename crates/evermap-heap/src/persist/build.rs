//! Building values in place.
//!
//! A value that owns memory of an object can only be created inside that object. [`Build`] defines
//! the ordinary values from which a type can be built; [`Slot`] is the place to fill; [`Built`] is
//! the proof that it was filled. Because of this proof, `Build` can be a safe trait: a `Built<'a,
//! T>` can only come from the `Slot<'a, T>` of the same call, because `'a` is invariant and unknown
//! to the callee.
//!
//! Invariant of this file: a build that fails or panics has freed everything it allocated, and its
//! slot counts as never filled.

use std::marker::PhantomData;
use std::mem::{self, MaybeUninit};
use std::ops::Deref;
use std::ptr::NonNull;

use super::{Mut, Persist, release_value};
use crate::HeapError;
use crate::alloc::Heap;

/// A type that can be built in an object from an `S`.
///
/// | to build | from |
/// |---|---|
/// | any type of its own kind by value | itself (scalars, structs made of empty containers, `PVec::new()`) |
/// | a derived struct `Notes` | `NotesInit { .. }`, with a source for each field |
/// | [`PString`](super::PString) | `&str`, `String`, `&String`, `Box<str>`, `Cow<str>`, `char`, `&PString` |
/// | [`PVec<T>`](super::PVec) | arrays, `Vec`, slices of sources, [`from_iter`]`(..)` |
/// | [`PMap<K, V>`](super::PMap), [`PBTree<K, V>`](super::PBTree) | arrays and `Vec`s of pairs, `HashMap`, `BTreeMap`, [`from_iter`]`(..)` |
/// | [`PBox<T>`](super::PBox) | a source of `T` |
/// | `Option<PBox<T>>` | an `Option` of a source of `T` |
/// | `[T; N]` | an array of sources |
///
/// Implement it to build your own types from your own sources; no `unsafe` is needed:
///
/// ```
/// use evermap::{Build, Built, HeapError, PString, PVec, Persist, Scratch, Slot};
///
/// #[derive(Persist)]
/// #[repr(C)]
/// struct Words { words: PVec<PString>, letters: u64 }
///
/// struct Sentence(&'static str);
///
/// impl Build<Sentence> for Words {
///     fn build<'a>(source: Sentence, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
///         let empty = Words { words: PVec::new(), letters: 0 };
///         slot.write_with(empty, |mut words| {
///             let mut words = words.fields();
///             for word in source.0.split(' ') {
///                 *words.letters += words.words.push(word)?.len() as u64;
///             }
///             Ok(())
///         })
///     }
/// }
///
/// let object = Scratch::<Words>::new(Sentence("all is well"))?;
/// assert_eq!(object.root().words, ["all", "is", "well"]);
/// assert_eq!(object.root().letters, 9);
/// # Ok::<(), evermap::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "a `{Self}` can't be built from `{S}`",
    label = "no way to build a `{Self}` from `{S}`",
    note = "see the table at `evermap::Build`; a derived struct `Name` is built from `NameInit {{ .. }}`"
)]
pub trait Build<S>: Persist {
    /// True if building copies the source's bytes. Containers then copy in bulk.
    #[doc(hidden)]
    const BITWISE: Bitwise = Bitwise::NO;

    /// Fills `slot` from `source`.
    ///
    /// # Errors
    ///
    /// Returns an error when the object can't grow, or a capacity overflows. Nothing stays
    /// allocated then.
    fn build<'a>(source: S, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError>;

    /// Returns the bytes of blocks that building from `source` will allocate, if that is known. A
    /// new object's file gets this size. It is an estimate: too little costs one more region, too
    /// much occupies disk space until the file is truncated to size.
    fn expected_bytes(source: &S) -> Option<u64> {
        let _ = source;
        None
    }

    /// Replaces a value. Call it as [`Mut::assign`].
    ///
    /// Override it where the memory of the old value can be reused.
    ///
    /// # Errors
    ///
    /// Same errors as [`build`](Build::build). The old value is unchanged after an error.
    fn assign(source: S, mut target: Mut<'_, Self>) -> Result<(), HeapError> {
        let mut staged = MaybeUninit::<Self>::uninit();
        // SAFETY: on success `staged` holds a value built in the target's object, used only here.
        unsafe {
            build_at::<Self, S>(target.heap, NonNull::from(&mut staged).cast(), source)?;
            target.replace_from(&staged);
        }
        Ok(())
    }
}

/// Tells whether a [`Build`] copies bytes. Only `unsafe` code can declare that.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct Bitwise(bool);

impl Bitwise {
    pub const NO: Bitwise = Bitwise(false);

    /// # Safety
    ///
    /// Source and target are the same type, which is `Copy`, or arrays of such a type.
    pub const unsafe fn promised() -> Bitwise {
        Bitwise(true)
    }

    pub const fn holds(self) -> bool {
        self.0
    }
}

/// An unfilled place for a value in an object. Passed to [`Build::build`].
///
/// Fill it with [`write`](Slot::write), [`write_with`](Slot::write_with) or [`build`](Slot::build).
/// Each returns the [`Built`] that `Build::build` has to return. The address of the value isn't
/// final before the outermost build has returned.
pub struct Slot<'a, T> {
    pub(super) heap: &'a Heap,
    pub(super) target: NonNull<T>,
    brand: Brand<'a, T>,
}

/// The proof that a [`Slot`] was filled.
#[must_use = "return it from `Build::build`"]
pub struct Built<'a, T>(Brand<'a, T>);

/// Invariant in `'a`: the lifetime of one slot can't replace the lifetime of another.
type Brand<'a, T> = PhantomData<(fn(&'a ()) -> &'a (), *mut T)>;

impl<'a, T: Persist> Slot<'a, T> {
    /// # Safety
    ///
    /// `target` is writable memory for a `T` without other users during `'a`. It lies in `heap`'s
    /// object, or its value is moved there before any other use.
    pub(super) unsafe fn new(heap: &'a Heap, target: NonNull<T>) -> Self {
        Slot { heap, target, brand: PhantomData }
    }

    /// Moves a value in.
    ///
    /// ```
    /// use evermap::{Build, Built, HeapError, Persist, Scratch, Slot};
    ///
    /// #[derive(Persist)]
    /// #[repr(C)]
    /// struct Seconds(u64);
    ///
    /// impl Build<std::time::Duration> for Seconds {
    ///     fn build<'a>(
    ///         source: std::time::Duration,
    ///         slot: Slot<'a, Self>,
    ///     ) -> Result<Built<'a, Self>, HeapError> {
    ///         Ok(slot.write(Seconds(source.as_secs())))
    ///     }
    /// }
    ///
    /// let object = Scratch::<Seconds>::new(std::time::Duration::from_secs(60))?;
    /// assert_eq!(object.root().0, 60);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn write(self, value: T) -> Built<'a, T> {
        // SAFETY: writable memory for a `T` (`new`).
        unsafe { self.target.write(value) };
        Built(PhantomData)
    }

    /// Moves an empty value in and lets `fill` add to it; see the example at [`Build`].
    ///
    /// # Errors
    ///
    /// Returns the error of `fill`. The value is released then, and also if `fill` panics.
    pub fn write_with(
        self,
        empty: T,
        fill: impl FnOnce(Mut<'_, T>) -> Result<(), HeapError>,
    ) -> Result<Built<'a, T>, HeapError> {
        self.fill_with(empty, fill)
    }

    /// Like [`write_with`](Slot::write_with), with errors of any type.
    pub(super) fn fill_with<E>(
        self,
        empty: T,
        fill: impl FnOnce(Mut<'_, T>) -> Result<(), E>,
    ) -> Result<Built<'a, T>, E> {
        // SAFETY: writable memory for a `T` (`new`); from here on it holds a valid value, and the
        // guard releases it unless it is kept.
        unsafe {
            self.target.write(empty);
            let guard = ReleaseOnDrop::new(self.heap, self.target);
            fill(Mut::from_raw(self.heap, self.target))?;
            guard.keep();
        }
        Ok(Built(PhantomData))
    }

    /// Fills the slot by building from another source.
    ///
    /// # Errors
    ///
    /// Same errors as [`Build::build`].
    ///
    /// ```
    /// use evermap::{Build, Built, HeapError, PVec, Persist, Scratch, Slot};
    ///
    /// #[derive(Persist)]
    /// #[repr(C)]
    /// struct Squares { list: PVec<u64> }
    ///
    /// struct UpTo(u64);
    ///
    /// impl Build<UpTo> for Squares {
    ///     fn build<'a>(source: UpTo, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
    ///         let list: Vec<u64> = (1..=source.0).map(|n| n * n).collect();
    ///         slot.build(SquaresInit { list })
    ///     }
    /// }
    ///
    /// let object = Scratch::<Squares>::new(UpTo(3))?;
    /// assert_eq!(object.root().list, [1, 4, 9]);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn build<S>(self, source: S) -> Result<Built<'a, T>, HeapError>
    where
        T: Build<S>,
    {
        T::build(source, self)
    }

    /// Returns the slot's proof after its parts were filled one by one.
    ///
    /// # Safety
    ///
    /// The slot holds a valid value.
    pub(super) unsafe fn assume_built(self) -> Built<'a, T> {
        Built(PhantomData)
    }
}

/// Builds a value at `target`.
///
/// # Safety
///
/// `target` is writable memory for a `T` without other users. It lies in `heap`'s object, or its
/// value is moved there before any other use.
pub unsafe fn build_at<T: Build<S>, S>(
    heap: &Heap,
    target: NonNull<T>,
    source: S,
) -> Result<(), HeapError> {
    // SAFETY: the caller guarantees writable memory for a `T` without other users.
    let slot = unsafe { Slot::new(heap, target) };
    let Built(_) = T::build(source, slot)?;
    Ok(())
}

/// Allocates a block for a `T` and builds one in it. Frees the block if that fails.
pub fn build_block<T: Build<S>, S>(heap: &Heap, source: S) -> Result<NonNull<T>, HeapError> {
    Block::allocate(heap)?.fill(|slot| T::build(source, slot))
}

/// Like [`build_block`], but calls `fill` to fill the block.
pub fn build_block_with<T: Persist>(
    heap: &Heap,
    fill: impl for<'s> FnOnce(Slot<'s, T>) -> Result<Built<'s, T>, HeapError>,
) -> Result<NonNull<T>, HeapError> {
    Block::allocate(heap)?.fill(fill)
}

/// A fresh block for a `T`, freed unless it is filled.
pub(super) struct Block<'h, T> {
    heap: &'h Heap,
    block: NonNull<T>,
}

impl<'h, T: Persist> Block<'h, T> {
    pub(super) fn allocate(heap: &'h Heap) -> Result<Self, HeapError> {
        // A zero-sized value gets a block too: its address has to be unique.
        let block = heap.allocate(size_of::<T>().max(1), align_of::<T>())?;
        Ok(Block { heap, block: block.cast() })
    }

    pub(super) fn fill<E>(
        self,
        fill: impl for<'s> FnOnce(Slot<'s, T>) -> Result<Built<'s, T>, E>,
    ) -> Result<NonNull<T>, E> {
        // SAFETY: a fresh block of the right size and alignment.
        let Built(_) = fill(unsafe { Slot::new(self.heap, self.block) })?;
        let block = self.block;
        mem::forget(self);
        Ok(block)
    }
}

impl<T> Drop for Block<'_, T> {
    fn drop(&mut self) {
        // SAFETY: the block is fresh and has no other user: `fill` forgets this value.
        unsafe { self.heap.free(self.block.cast()) }
    }
}

/// Releases a value unless it is kept. Cleans up after unwinding and `?`.
pub(super) struct ReleaseOnDrop<'h, T: Persist> {
    heap: &'h Heap,
    target: NonNull<T>,
}

impl<'h, T: Persist> ReleaseOnDrop<'h, T> {
    /// # Safety
    ///
    /// `target` stays valid, and may be released, until the guard is dropped or kept.
    pub(super) unsafe fn new(heap: &'h Heap, target: NonNull<T>) -> Self {
        ReleaseOnDrop { heap, target }
    }

    pub(super) fn keep(self) {
        mem::forget(self);
    }
}

impl<T: Persist> Drop for ReleaseOnDrop<'_, T> {
    fn drop(&mut self) {
        // SAFETY: the caller of `new` guaranteed a valid value that may be released.
        unsafe { release_value(self.heap, self.target) }
    }
}

/// A value that was built on the stack and will be moved into the object. Released unless it is
/// moved.
pub(super) struct Staged<'h, T: Persist> {
    heap: &'h Heap,
    value: MaybeUninit<T>,
}

impl<'h, T: Persist> Staged<'h, T> {
    pub(super) fn build<S>(heap: &'h Heap, source: S) -> Result<Self, HeapError>
    where
        T: Build<S>,
    {
        let mut value = MaybeUninit::<T>::uninit();
        // SAFETY: the place is a local variable; `Staged` ensures that the value is moved or
        // released.
        unsafe { build_at(heap, NonNull::from(&mut value).cast::<T>(), source)? };
        Ok(Staged { heap, value })
    }

    /// Like [`build`](Staged::build), if there is something to build.
    #[cfg(feature = "serde")]
    pub(super) fn fill<E>(
        heap: &'h Heap,
        fill: impl for<'s> FnOnce(Slot<'s, T>) -> Result<Option<Built<'s, T>>, E>,
    ) -> Result<Option<Self>, E> {
        let mut value = MaybeUninit::<T>::uninit();
        // SAFETY: the place is a local variable; `Staged` ensures that the value is moved or
        // released.
        let slot = unsafe { Slot::new(heap, NonNull::from(&mut value).cast::<T>()) };
        Ok(match fill(slot)? {
            Some(Built(_)) => Some(Staged { heap, value }),
            None => None,
        })
    }

    /// # Safety
    ///
    /// A valid value of the heap's object without other users.
    pub(super) unsafe fn adopt(heap: &'h Heap, value: MaybeUninit<T>) -> Self {
        Staged { heap, value }
    }

    pub(super) fn heap(&self) -> &'h Heap {
        self.heap
    }

    /// Returns the value, which the caller then owns.
    pub(super) fn take(self) -> MaybeUninit<T> {
        let this = mem::ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped, so the value is copied out once.
        unsafe { std::ptr::read(&this.value) }
    }
}

impl<T: Persist> Deref for Staged<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: holds a built value until it is taken.
        unsafe { self.value.assume_init_ref() }
    }
}

impl<T: Persist> Drop for Staged<'_, T> {
    fn drop(&mut self) {
        // SAFETY: holds a built value without other users.
        unsafe { release_value(self.heap, NonNull::from(&mut self.value).cast::<T>()) }
    }
}

/// An iterator as a source: see [`from_iter`].
pub struct FromIter<I>(pub(super) I);

/// Makes a source for a [`PVec`](super::PVec), [`PMap`](super::PMap) or
/// [`PBTree`](super::PBTree) from an iterator of sources.
///
/// ```
/// use evermap::{PVec, Scratch, from_iter};
///
/// let object = Scratch::<PVec<u64>>::new(from_iter((1..4).map(|n| n * n)))?;
/// assert_eq!(object.root(), &[1, 4, 9]);
/// # Ok::<(), evermap::Error>(())
/// ```
pub fn from_iter<I: IntoIterator>(sources: I) -> FromIter<I::IntoIter> {
    FromIter(sources.into_iter())
}
