//! Scalars and arrays: values without pointers.

use std::marker::PhantomData;
use std::mem;
use std::ptr::NonNull;

use super::build::Bitwise;
use super::release::release_row;
use super::{Bounds, Build, Built, Description, Mut, Persist, Plain, Releaser, Slot};
use crate::HeapError;
use crate::alloc::Heap;

macro_rules! scalars {
    ($($scalar:ident)*) => {$(
        // SAFETY: a primitive of fixed layout; owns nothing.
        unsafe impl Persist for $scalar {
            type Fields<'a> = Mut<'a, Self>;
            const OWNS: bool = false;

            fn fields(this: Mut<'_, Self>) -> Mut<'_, Self> {
                this
            }

            fn describe(description: &mut Description) {
                description.leaf(stringify!($scalar), &[]);
            }

            unsafe fn release(_this: NonNull<Self>, _releaser: &mut Releaser<'_>) {}
        }

        // SAFETY: no pointer.
        unsafe impl Plain for $scalar {}

        impl Build<$scalar> for $scalar {
            // SAFETY: source and target are the same `Copy` type.
            const BITWISE: Bitwise = unsafe { Bitwise::promised() };

            fn build<'a>(source: $scalar, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
                Ok(slot.write(source))
            }
        }
    )*};
}

scalars!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64 bool char);

// The file format relies on these sizes. Old compilers had `align_of::<u128>() == 8` for the x86-64
// C ABI.
const _: () = assert!(size_of::<bool>() == 1 && size_of::<char>() == 4);
const _: () = assert!(align_of::<u64>() == 8 && align_of::<u128>() == 16);

// SAFETY: `N` adjacent elements, with a fixed layout if `T` has one; they are released one by one.
unsafe impl<T: Persist, const N: usize> Persist for [T; N] {
    type Fields<'a> = [Mut<'a, T>; N];
    const OWNS: bool = T::OWNS && N != 0;

    fn fields(this: Mut<'_, Self>) -> [Mut<'_, T>; N] {
        let first = this.target.cast::<T>();
        // SAFETY: elements of an array that the cursor has exclusive access to, each taken once.
        std::array::from_fn(|index| unsafe { Mut::from_raw(this.heap, first.add(index)) })
    }

    fn describe(description: &mut Description) {
        description.array(T::describe, N);
    }

    unsafe fn release(this: NonNull<Self>, releaser: &mut Releaser<'_>) {
        if Self::OWNS {
            for index in 0..N {
                // SAFETY: an element of a valid array, which the caller releases.
                unsafe { T::release(this.cast::<T>().add(index), releaser) };
            }
        }
    }

    unsafe fn is_bounded(this: NonNull<Self>, bounds: &Bounds<'_>) -> bool {
        // SAFETY: the elements' bytes are the array's, which the caller lets be read.
        !T::OWNS || unsafe { super::are_bounded(this.cast::<T>(), N, bounds) }
    }
}

// SAFETY: the array has no pointers if `T` has none.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

impl<T: Build<S>, S, const N: usize> Build<[S; N]> for [T; N] {
    const BITWISE: Bitwise = T::BITWISE;

    fn build<'a>(source: [S; N], slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
        let mut row = Row::begin(&slot);
        for source in source {
            row.push_with(|slot| T::build(source, slot).map(Some))?;
        }
        Ok(row.finish(slot))
    }
}

/// Elements built so far. Released if the rest fails.
pub(super) struct Row<'h, T: Persist, const N: usize> {
    heap: &'h Heap,
    first: NonNull<T>,
    built: usize,
}

impl<'h, T: Persist, const N: usize> Row<'h, T, N> {
    /// Starts to fill an array.
    pub(super) fn begin(slot: &Slot<'h, [T; N]>) -> Self {
        Row { heap: slot.heap, first: slot.target.cast(), built: 0 }
    }

    /// Builds the next element, if `fill` does. Returns true if it did.
    pub(super) fn push_with<E>(
        &mut self,
        fill: impl for<'s> FnOnce(Slot<'s, T>) -> Result<Option<Built<'s, T>>, E>,
    ) -> Result<bool, E> {
        assert!(self.built < N);
        // SAFETY: an element of the slot that hasn't been built yet.
        let slot = unsafe { Slot::new(self.heap, self.first.add(self.built)) };
        let built = fill(slot)?.is_some();
        self.built += usize::from(built);
        Ok(built)
    }

    /// Returns the proof for the slot with which the row began.
    pub(super) fn finish(self, slot: Slot<'h, [T; N]>) -> Built<'h, [T; N]> {
        assert!(self.built == N && slot.target.cast() == self.first);
        mem::forget(self);
        // SAFETY: all elements are built.
        unsafe { slot.assume_built() }
    }
}

impl<T: Persist, const N: usize> Drop for Row<'_, T, N> {
    fn drop(&mut self) {
        // SAFETY: `built` counts valid elements without other users.
        unsafe { release_row(self.heap, self.first, self.built) }
    }
}

// SAFETY: no bytes at all.
unsafe impl<T: Persist> Persist for PhantomData<T> {
    type Fields<'a> = Mut<'a, Self>;
    const OWNS: bool = false;

    fn fields(this: Mut<'_, Self>) -> Mut<'_, Self> {
        this
    }

    fn describe(description: &mut Description) {
        description.leaf("PhantomData", &[T::describe]);
    }

    unsafe fn release(_this: NonNull<Self>, _releaser: &mut Releaser<'_>) {}
}

// SAFETY: no bytes at all.
unsafe impl<T: Persist> Plain for PhantomData<T> {}

impl<T: Persist> Build<PhantomData<T>> for PhantomData<T> {
    fn build<'a>(source: Self, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
        Ok(slot.write(source))
    }
}
