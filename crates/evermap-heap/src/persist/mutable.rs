//! The writer's cursor.
//!
//! A [`Mut`] is to an object what `Pin<&mut T>` is to a pinned value: exclusive access without the
//! ability to move the value away. It holds the heap of its object, so edits allocate only there.
//! Every method here keeps this invariant: no `&mut T` reaches safe code unless `T: Plain`.

use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use super::{Build, Persist, Plain, Ptr, release_value};
use crate::HeapError;
use crate::alloc::Heap;

/// Exclusive access to a value in an object: `&mut T` that can't move the value away.
///
/// A cursor reads like a `&T`. It writes by [`set`](Mut::set) and [`assign`](Mut::assign), through
/// its [`fields`](Mut::fields), by the methods of the containers (`Mut<'_, PVec<T>>` has `push`,
/// and so on), and, if `T` is [`Plain`], like a `&mut T`.
///
/// A cursor is two words and costs nothing to create. It lives no longer than the borrow of the
/// session that it came from.
///
/// ```
/// use evermap::{PMap, PString, Scratch};
///
/// let mut object = Scratch::<PMap<PString, u64>>::new([("apples", 3)])?;
/// let mut map = object.root_mut();
/// *map.get_or_insert_with("apples", || 0)? += 1;
/// assert_eq!(map.get("apples"), Some(&4));
/// # Ok::<(), evermap::Error>(())
/// ```
pub struct Mut<'a, T> {
    pub(super) heap: &'a Heap,
    pub(super) target: NonNull<T>,
    exclusive: PhantomData<&'a mut T>,
}

// SAFETY: a cursor is an exclusive borrow of a `T` and a shared one of the heap, which is `Sync`
// (the assertion below); it may go where a `&mut T` may.
unsafe impl<T: Send> Send for Mut<'_, T> {}
// SAFETY: sharing a cursor gives access to `&T` only.
unsafe impl<T: Sync> Sync for Mut<'_, T> {}

const _: () = {
    const fn sync<T: Sync>() {}
    sync::<Heap>();
};

impl<'a, T> Mut<'a, T> {
    /// Creates a cursor to a value.
    ///
    /// # Safety
    ///
    /// `target` is a valid `T` in the object that `heap` allocates in. Nothing else accesses it
    /// during `'a`.
    #[doc(hidden)]
    pub unsafe fn from_raw(heap: &'a Heap, target: NonNull<T>) -> Self {
        Mut { heap, target, exclusive: PhantomData }
    }

    /// Returns the value, for the methods of the containers of this module.
    ///
    /// They must not pass the reference on to safe code: see the top of the file.
    pub(super) fn raw(&mut self) -> &mut T {
        // SAFETY: the cursor has exclusive access to a valid value (`from_raw`), lent here for the
        // borrow of the cursor.
        unsafe { self.target.as_mut() }
    }

    /// Returns a second cursor to the same value, for a shorter time. This cursor is borrowed
    /// during that time.
    ///
    /// ```
    /// use evermap::{Mut, PVec, Scratch};
    ///
    /// fn add(mut numbers: Mut<'_, PVec<u64>>) -> Result<(), evermap::Error> {
    ///     numbers.push(1)?;
    ///     Ok(())
    /// }
    ///
    /// let mut object = Scratch::<PVec<u64>>::new([])?;
    /// let mut numbers = object.root_mut();
    /// add(numbers.reborrow())?;
    /// add(numbers)?;
    /// assert_eq!(object.root(), &[1, 1]);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn reborrow(&mut self) -> Mut<'_, T> {
        Mut { heap: self.heap, target: self.target, exclusive: PhantomData }
    }

    /// Turns the cursor into a plain reference with the cursor's full lifetime.
    ///
    /// ```
    /// use evermap::Scratch;
    ///
    /// let mut object = Scratch::<u64>::new(7)?;
    /// let number: &u64 = object.root_mut().into_ref();
    /// assert_eq!(*number, 7);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn into_ref(self) -> &'a T {
        // SAFETY: exclusive access to a valid value for `'a` (`from_raw`), and the cursor is
        // consumed.
        unsafe { self.target.as_ref() }
    }

    /// Returns the value's address, as a pointer that can be stored elsewhere in the same object.
    ///
    /// ```
    /// use evermap::{Ptr, Scratch};
    ///
    /// let mut object = Scratch::<u64>::new(7)?;
    /// let pointer: Ptr<u64> = object.root_mut().as_ptr();
    /// assert!(!pointer.is_null());
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn as_ptr(&self) -> Ptr<T> {
        Ptr::from_non_null(self.target)
    }
}

impl<'a, T: Persist> Mut<'a, T> {
    /// Returns one cursor per field, so that several fields can be edited at the same time.
    ///
    /// ```
    /// use evermap::{PString, PVec, Persist, Scratch};
    ///
    /// #[derive(Persist)]
    /// #[repr(C)]
    /// struct Log { lines: PVec<PString>, bytes: u64 }
    ///
    /// let mut object = Scratch::<Log>::new(Log { lines: PVec::new(), bytes: 0 })?;
    /// let mut log = object.root_mut();
    /// let LogFields { mut lines, mut bytes } = log.fields();
    /// *bytes += lines.push("started")?.len() as u64;
    /// assert_eq!(object.root().bytes, 7);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn fields(&mut self) -> T::Fields<'_> {
        T::fields(self.reborrow())
    }

    /// Like [`fields`](Mut::fields), with cursors that have this cursor's full lifetime.
    ///
    /// ```
    /// use evermap::{PBox, Persist, Scratch};
    ///
    /// #[derive(Persist)]
    /// #[repr(C)]
    /// struct Node { value: u64, next: Option<PBox<Node>> }
    ///
    /// let mut object = Scratch::<Node>::new(Node { value: 1, next: None })?;
    /// // Walk to the end of the list, then append.
    /// let mut tail = object.root_mut().into_fields().next;
    /// while tail.is_some() {
    ///     let Some(node) = tail.into_mut() else { unreachable!() };
    ///     tail = node.into_fields().next;
    /// }
    /// tail.insert(Node { value: 2, next: None })?;
    /// assert_eq!(object.root().next.as_ref().map(|node| node.value), Some(2));
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn into_fields(self) -> T::Fields<'a> {
        T::fields(self)
    }

    /// Releases the old contents and moves `value` in. Never fails and never allocates.
    ///
    /// For a type that owns memory, safe code can only pass an empty value here, because other
    /// values are built in their object. Use [`assign`](Mut::assign) for contents.
    ///
    /// ```
    /// use evermap::{PVec, Scratch};
    ///
    /// let mut object = Scratch::<PVec<u64>>::new([1, 2])?;
    /// object.root_mut().set(PVec::new());
    /// assert!(object.root().is_empty());
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn set(&mut self, value: T) {
        // SAFETY: exclusive access to a valid value (`from_raw`). It is overwritten at once, and no
        // user code runs in between.
        unsafe {
            release_value(self.heap, self.target);
            self.target.write(value);
        }
    }

    /// Builds a new value from `source`, then releases the old contents and puts the new ones in
    /// their place.
    ///
    /// # Errors
    ///
    /// Returns an error when the object can't grow. The old contents are unchanged then.
    ///
    /// ```
    /// use evermap::{PVec, PString, Scratch};
    ///
    /// let mut object = Scratch::<PVec<PString>>::new(["one"])?;
    /// object.root_mut().assign(["two", "three"])?;
    /// assert_eq!(object.root(), &["two", "three"]);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    pub fn assign<S>(&mut self, source: S) -> Result<(), HeapError>
    where
        T: Build<S>,
    {
        T::assign(source, self.reborrow())
    }

    /// Releases the old value and moves in the one that `staged` holds.
    ///
    /// # Safety
    ///
    /// `staged` is a valid value built in this cursor's object; it is not used afterwards.
    pub(super) unsafe fn replace_from(&mut self, staged: &MaybeUninit<T>) {
        // SAFETY: exclusive access to a valid value (`from_raw`), overwritten at once; the caller
        // guarantees that `staged` is valid.
        unsafe {
            release_value(self.heap, self.target);
            self.target.as_ptr().copy_from_nonoverlapping(staged.as_ptr(), 1);
        }
    }
}

impl<T> Deref for Mut<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: exclusive access to a valid value (`from_raw`), lent here for the borrow of the
        // cursor.
        unsafe { self.target.as_ref() }
    }
}

impl<T: Plain> DerefMut for Mut<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // A `Plain` value holds no pointers: it may be copied out, swapped and overwritten.
        self.raw()
    }
}

impl<T: fmt::Debug> fmt::Debug for Mut<'_, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, formatter)
    }
}
