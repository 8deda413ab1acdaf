//! Functions that the derive macros' output calls. Not public API: it may change with any version,
//! together with the macros.

use std::mem;
use std::ptr::NonNull;

use super::{Bounds, Build, Built, Description, Mut, Persist, Releaser, Slot, release_value};
use crate::HeapError;
use crate::alloc::Heap;

pub use super::build::Bitwise;
#[cfg(feature = "serde")]
pub use super::serde as deserialize;
pub use super::typing::Definition;

/// One field of a derived struct, with everything that its `Persist` needs, so that a field type
/// that isn't `Persist` is reported once.
pub struct Field {
    name: &'static str,
    offset: usize,
    of: FieldType,
}

/// Properties of a field's type.
#[derive(Clone, Copy)]
pub struct FieldType {
    owns: bool,
    describe: fn(&mut Description),
    release: unsafe fn(NonNull<u8>, &mut Releaser<'_>),
    is_bounded: unsafe fn(NonNull<u8>, &Bounds<'_>) -> bool,
}

impl FieldType {
    /// Returns the properties of type `F`.
    pub const fn of<F: Persist>() -> FieldType {
        unsafe fn release<F: Persist>(field: NonNull<u8>, releaser: &mut Releaser<'_>) {
            // SAFETY: the callers of `FieldType::at` and `release_fields` guarantee a valid field
            // of type `F`.
            unsafe { F::release(field.cast(), releaser) }
        }
        unsafe fn is_bounded<F: Persist>(field: NonNull<u8>, bounds: &Bounds<'_>) -> bool {
            // SAFETY: the callers of `FieldType::at` and `fields_are_bounded` let the field's bytes
            // be read.
            unsafe { F::is_bounded(field.cast(), bounds) }
        }
        FieldType {
            owns: F::OWNS,
            describe: F::describe,
            release: release::<F>,
            is_bounded: is_bounded::<F>,
        }
    }

    /// Creates a field.
    ///
    /// # Safety
    ///
    /// The field lies at that offset of every struct for which the table is used.
    pub const unsafe fn at(self, name: &'static str, offset: usize) -> Field {
        Field { name, offset, of: self }
    }
}

/// Returns true if any of the fields owns memory. Not computed from the table, and given the types
/// by value: a constant or a reference to one in between would take twice the compiler's depth for
/// deeply nested types.
pub const fn any_owns<const N: usize>(types: [FieldType; N]) -> bool {
    let mut index = 0;
    while index < N {
        if types[index].owns {
            return true;
        }
        index += 1;
    }
    false
}

/// Describes the fields.
pub fn describe_fields(fields: &[Field], definition: &mut Definition<'_>) {
    for field in fields {
        definition.field_as(field.name, field.offset, field.of.describe);
    }
}

/// Releases the fields.
///
/// # Safety
///
/// `value` points to a valid value of the struct that the table belongs to, without other users. It
/// is overwritten or freed before it is used again.
#[inline]
pub unsafe fn release_fields(fields: &[Field], value: NonNull<u8>, releaser: &mut Releaser<'_>) {
    for field in fields {
        if field.of.owns {
            // SAFETY: the field lies there (`FieldType::at`) and is valid, as the whole value is.
            unsafe { (field.of.release)(value.byte_add(field.offset), releaser) };
        }
    }
}

/// Checks the pointers of each field, see [`Persist::is_bounded`].
///
/// # Safety
///
/// The bytes of the struct at `value` may be read.
pub unsafe fn fields_are_bounded(
    fields: &[Field],
    value: NonNull<u8>,
    bounds: &Bounds<'_>,
) -> bool {
    fields.iter().all(|field| {
        // SAFETY: the field lies there (`FieldType::at`).
        !field.of.owns || unsafe { (field.of.is_bounded)(value.byte_add(field.offset), bounds) }
    })
}

/// Cursors to the fields of one value.
pub struct Projection<'a, T>(Mut<'a, T>);

impl<'a, T> Projection<'a, T> {
    /// Consumes the cursor.
    pub fn of(value: Mut<'a, T>) -> Self {
        Projection(value)
    }

    /// Returns the value's address.
    pub fn as_ptr(&self) -> *mut T {
        self.0.target.as_ptr()
    }

    /// Returns a cursor to one field.
    ///
    /// # Safety
    ///
    /// `field` points to a field of the value at `as_ptr`, and each field is requested once.
    pub unsafe fn field<F>(&self, field: *mut F) -> Mut<'a, F> {
        // SAFETY: a field of a valid value is valid and not null. The projection has taken over the
        // cursor's exclusive access, and the caller requests each field once, so cursors don't
        // overlap.
        unsafe { Mut::from_raw(self.0.heap, NonNull::new_unchecked(field)) }
    }
}

/// A slot that is filled field by field.
pub struct Parts<'a, T>(Slot<'a, T>);

/// One field that has been built. Released again when dropped, unless kept.
pub struct Part<'a> {
    heap: &'a Heap,
    field: NonNull<u8>,
    release: unsafe fn(&Heap, NonNull<u8>),
}

impl<'a> Part<'a> {
    pub(super) fn built<F: Persist>(
        heap: &'a Heap,
        field: NonNull<F>,
        _proof: Built<'a, F>,
    ) -> Part<'a> {
        unsafe fn release<F: Persist>(heap: &Heap, field: NonNull<u8>) {
            // SAFETY: a built field without other users.
            unsafe { release_value::<F>(heap, field.cast()) }
        }
        Part { heap, field: field.cast(), release: release::<F> }
    }

    /// Keeps the field.
    pub fn keep(self) {
        mem::forget(self);
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        // SAFETY: a field that `build_field` has built, with the function for its type.
        unsafe { (self.release)(self.heap, self.field) }
    }
}

/// A source of a field of type `F`: every source that [`Build`] accepts. The generated code is
/// bound by this trait and not by `F: Build<..>`, which would report an `F` that isn't [`Persist`]
/// a second time.
#[diagnostic::on_unimplemented(
    message = "a `{F}` can't be built from `{Self}`",
    label = "no way to build a `{F}` from `{Self}`"
)]
pub trait FieldSource<F> {
    /// Builds the field.
    ///
    /// # Safety
    ///
    /// `field` points to a field of the struct that `parts` fills, and hasn't been built yet.
    unsafe fn build_field<'a, T: Persist>(
        self,
        parts: &Parts<'a, T>,
        field: *mut F,
    ) -> Result<Part<'a>, HeapError>;
}

impl<F: Build<S>, S> FieldSource<F> for S {
    #[inline]
    unsafe fn build_field<'a, T: Persist>(
        self,
        parts: &Parts<'a, T>,
        field: *mut F,
    ) -> Result<Part<'a>, HeapError> {
        // SAFETY: the caller guarantees an unbuilt field of the struct.
        let slot = unsafe { parts.slot(field) };
        let (heap, target) = (slot.heap, slot.target);
        let built = F::build(self, slot)?;
        Ok(Part::built(heap, target, built))
    }
}

impl<'a, T: Persist> Parts<'a, T> {
    /// Consumes the slot.
    pub fn of(slot: Slot<'a, T>) -> Self {
        Parts(slot)
    }

    /// Returns the slot's address.
    pub fn as_ptr(&self) -> *mut T {
        self.0.target.as_ptr()
    }

    /// Returns the slot of a field.
    ///
    /// # Safety
    ///
    /// `field` points to a field of the struct that hasn't been built yet.
    pub(super) unsafe fn slot<F: Persist>(&self, field: *mut F) -> Slot<'a, F> {
        // SAFETY: a field of a slot is writable memory for an `F`, not null, and has no other user.
        unsafe { Slot::new(self.0.heap, NonNull::new_unchecked(field)) }
    }

    /// Returns the proof.
    ///
    /// # Safety
    ///
    /// Every field was built and kept.
    pub unsafe fn finish(self) -> Built<'a, T> {
        // SAFETY: a struct whose fields are all valid is valid.
        unsafe { self.0.assume_built() }
    }
}
