//! A pointer that owns nothing, for structures that ownership can't express: graphs, parent links,
//! intrusive lists. Creating, storing and comparing one is safe. Following it is not, because
//! nothing here tracks whether the node still exists.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ptr::NonNull;

use super::{Build, Built, Description, Mut, POINTER_BYTES, Persist, Releaser, Slot};
use crate::HeapError;

/// A raw pointer to another value of the same object. Has the size of a pointer, may be null, and
/// owns nothing.
///
/// It stays valid across runs, because objects are mapped at the same addresses. It does *not*
/// follow a value that moves: elements of a [`PVec`](super::PVec) move when it grows or shifts,
/// entries of a [`PMap`](super::PMap) when it grows or is compacted; the contents of a
/// [`PBox`](super::PBox) stay.
///
/// ```
/// use evermap::{PBox, PVec, Persist, Ptr, Scratch};
///
/// #[derive(Persist)]
/// #[repr(C)]
/// struct Place { name: u64, next: Ptr<Place> }
///
/// let mut object = Scratch::<PVec<PBox<Place>>>::new([
///     Place { name: 1, next: Ptr::null() },
///     Place { name: 2, next: Ptr::null() },
/// ])?;
/// let mut places = object.root_mut();
/// // A ring: 1 -> 2 -> 1.
/// let ends = [&*places[0], &*places[1]].map(Ptr::from_ref);
/// for (mut place, next) in places.iter_mut().zip([ends[1], ends[0]]) {
///     place.get_mut().fields().next.set(next);
/// }
///
/// let first = &object.root()[0];
/// // SAFETY: the places are boxed, so they didn't move, and the object is borrowed.
/// let around = unsafe { first.next.as_ref().and_then(|place| place.next.as_ref()) };
/// assert_eq!(around.map(|place| place.name), Some(1));
/// # Ok::<(), evermap::Error>(())
/// ```
#[repr(transparent)]
pub struct Ptr<T>(*mut T);

const _: () = assert!(size_of::<Ptr<u8>>() == POINTER_BYTES);
const _: () = assert!(align_of::<Ptr<u8>>() == POINTER_BYTES);

// SAFETY: a `Ptr` gives access only through `unsafe` code, which also guarantees thread safety.
unsafe impl<T> Send for Ptr<T> {}
// SAFETY: a `Ptr` gives access only through `unsafe` code, which also guarantees thread safety.
unsafe impl<T> Sync for Ptr<T> {}

impl<T> Ptr<T> {
    /// Returns the null pointer.
    pub const fn null() -> Self {
        Ptr(std::ptr::null_mut())
    }

    /// Returns the address of a value.
    ///
    /// Storing the address of a value outside the same object is safe, but the pointer is
    /// meaningless in the next run. To write through a pointer, create it with [`Mut::as_ptr`]
    /// instead.
    pub const fn from_ref(value: &T) -> Self {
        Ptr(std::ptr::from_ref(value).cast_mut())
    }

    pub(super) fn from_non_null(target: NonNull<T>) -> Self {
        Ptr(target.as_ptr())
    }

    /// Returns true if the pointer is null.
    pub const fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Returns the address, 0 if null.
    pub fn address(self) -> u64 {
        self.0.addr() as u64
    }

    /// Follows the pointer for reading. Returns `None` if it is null.
    ///
    /// # Safety
    ///
    /// If not null, it points to a valid `T` in a mapped object, and the value is not written
    /// during `'a`. The caller chooses the lifetime: bind it to the borrow of the session or
    /// snapshot.
    pub unsafe fn as_ref<'a>(self) -> Option<&'a T> {
        // SAFETY: the caller guarantees null or a valid value that is not written.
        unsafe { self.0.as_ref() }
    }

    /// Follows the pointer for writing, with the heap of `cursor`'s object. Returns `None` if it is
    /// null.
    ///
    /// ```
    /// use evermap::{PBox, PVec, Persist, Ptr, Scratch};
    ///
    /// #[derive(Persist)]
    /// #[repr(C)]
    /// struct Pool { values: PVec<PBox<u64>>, best: Ptr<u64> }
    ///
    /// let mut object = Scratch::<Pool>::new(PoolInit { values: [4, 9], best: Ptr::null() })?;
    /// let mut pool = object.root_mut();
    /// let mut fields = pool.fields();
    /// let best = fields.values.get_mut(1).map(|mut value| value.get_mut().as_ptr());
    /// fields.best.set(best.unwrap_or_default());
    ///
    /// let best = pool.best;
    /// // SAFETY: the value is boxed and still there, and `pool` reaches it by nothing else now.
    /// if let Some(mut best) = unsafe { best.follow_mut(&mut pool) } {
    ///     *best += 1;
    /// }
    /// assert_eq!(*object.root().values[1], 10);
    /// # Ok::<(), evermap::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// If not null, it points to a valid `T` in the same object as the cursor's value. Nothing else
    /// reads or writes that value while the result lives.
    pub unsafe fn follow_mut<'a, U>(self, cursor: &'a mut Mut<'_, U>) -> Option<Mut<'a, T>> {
        // SAFETY: the caller guarantees a valid value of the cursor's object without other users.
        NonNull::new(self.0).map(|target| unsafe { Mut::from_raw(cursor.heap, target) })
    }
}

impl<T> Clone for Ptr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Ptr<T> {}

impl<T> Default for Ptr<T> {
    fn default() -> Self {
        Ptr::null()
    }
}

impl<T> PartialEq for Ptr<T> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::addr_eq(self.0, other.0)
    }
}

impl<T> Eq for Ptr<T> {}

impl<T> Hash for Ptr<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl<T> fmt::Debug for Ptr<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Ptr({:p})", self.0)
    }
}

// SAFETY: laid out like `*mut T`; owns nothing.
unsafe impl<T: Persist> Persist for Ptr<T> {
    type Fields<'a> = Mut<'a, Self>;
    const OWNS: bool = false;

    fn fields(this: Mut<'_, Self>) -> Mut<'_, Self> {
        this
    }

    fn describe(description: &mut Description) {
        description.leaf("Ptr", &[T::describe]);
    }

    unsafe fn release(_this: NonNull<Self>, _releaser: &mut Releaser<'_>) {}
}

impl<T: Persist> Build<Ptr<T>> for Ptr<T> {
    fn build<'a>(source: Ptr<T>, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
        Ok(slot.write(source))
    }
}
