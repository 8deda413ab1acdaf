//! What the derive macros' output calls. Not public API: it may change with any version, together
//! with the macros.

use std::ptr::NonNull;

use super::build::{ReleaseOnDrop, build_at};
use super::{Build, Built, Mut, Persist, Slot};
use crate::Error;

pub use super::build::Bitwise;
pub use super::describe::Definition;

/// Cursors to the fields of one value.
pub struct Projection<'a, T>(Mut<'a, T>);

impl<'a, T> Projection<'a, T> {
    /// Takes the cursor apart.
    pub fn of(value: Mut<'a, T>) -> Self {
        Projection(value)
    }

    /// The value's address.
    pub fn as_ptr(&self) -> *mut T {
        self.0.target.as_ptr()
    }

    /// A cursor to one field.
    ///
    /// # Safety
    ///
    /// `field` points to a field of the value at `as_ptr`, and each field is asked for once.
    pub unsafe fn field<F>(&self, field: *mut F) -> Mut<'a, F> {
        // SAFETY: a field of a valid value is valid, not null, and the projection has taken over the
        // cursor's exclusive access; the caller asks for each field once, so cursors don't overlap.
        unsafe { Mut::from_raw(self.0.heap, NonNull::new_unchecked(field)) }
    }
}

/// A slot that is filled field by field.
pub struct Parts<'a, T>(Slot<'a, T>);

/// One field that has been built. Released again when dropped, unless kept.
pub struct Part<'a, F: Persist>(ReleaseOnDrop<'a, F>);

impl<F: Persist> Part<'_, F> {
    /// The field stays.
    pub fn keep(self) {
        self.0.keep();
    }
}

impl<'a, T: Persist> Parts<'a, T> {
    /// Takes the slot apart.
    pub fn of(slot: Slot<'a, T>) -> Self {
        Parts(slot)
    }

    /// The slot's address.
    pub fn as_ptr(&self) -> *mut T {
        self.0.target.as_ptr()
    }

    /// Builds one field.
    ///
    /// # Safety
    ///
    /// `field` points to a field of the `T` at `as_ptr` that hasn't been built yet.
    pub unsafe fn field<F: Build<S>, S>(
        &self,
        field: *mut F,
        source: S,
    ) -> Result<Part<'a, F>, Error> {
        // SAFETY: a field of a slot is writable memory for an `F`, not null, and reached by nobody
        // else; once built it is valid until the guard decides.
        unsafe {
            let field = NonNull::new_unchecked(field);
            build_at(self.0.heap, field, source)?;
            Ok(Part(ReleaseOnDrop::new(self.0.heap, field)))
        }
    }

    /// The proof.
    ///
    /// # Safety
    ///
    /// Every field was built and kept.
    pub unsafe fn finish(self) -> Built<'a, T> {
        // SAFETY: a struct whose fields are all valid is valid.
        unsafe { self.0.assume_built() }
    }
}
