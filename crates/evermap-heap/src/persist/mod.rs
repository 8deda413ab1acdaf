//! The typed layer: types that may lie in an object, and how safe Rust reads and edits them.
//!
//! Objects are mapped at fixed addresses, so the containers here hold raw absolute pointers into
//! their own object. One rule makes that safe: **safe code never gets a `&mut` to, nor a non-empty
//! value of, a type that holds such pointers.** Readers get `&T`; writers get [`Mut`], a cursor
//! that edits in place. A pointer-bearing value therefore can't outlive its mapping, can't move
//! into another object and can't be freed twice. `docs/persist.md` has the whole argument.
//!
//! Layouts are given with pointers of eight bytes. In a guest's object they have four, and
//! everything else keeps its size and alignment.
//!
//! This module owns the layouts of the containers (each file asserts its own to the byte) and uses
//! the layer below only through [`crate::alloc::Heap`]. A change here can break two things that no
//! test of a single run notices: a layout in existing files, and a description text, which decides
//! whether an existing object may be opened as a given type.

mod bounds;
mod build;
mod compare;
mod detached;
mod mutable;
mod pairs;
mod pbox;
mod pbtree;
mod pmap;
mod pstring;
mod ptextmap;
mod ptr;
mod pvec;
mod release;
mod scalars;
mod scratch;
#[cfg(feature = "serde")]
pub mod serde;
mod typing;

pub mod private;

#[cfg(test)]
mod tests;

pub use bounds::Bounds;
pub use build::{Build, Built, FromIter, Slot, from_iter};
pub use detached::Detached;
pub use mutable::Mut;
pub use pbox::PBox;
pub use pbtree::{PBTree, iter as btree};
pub use pmap::{PMap, Reads, iter as map};
pub use pstring::PString;
pub use ptextmap::{PTextMap, TextIter};
pub use ptr::Ptr;
pub use pvec::{IterMut, PVec};
pub use release::Releaser;
pub use scratch::Scratch;
pub use typing::{
    Description, FieldChange, FieldShape, KeySource, PersistHash, SchemaDifference, TypeId128,
    type_description, type_id,
};

pub use build::{build_at as build_root, build_block, build_block_with};
pub use release::release_value;

use bounds::are_bounded;

use std::ptr::NonNull;

/// Bytes of a pointer in an object: eight, or four in a guest's. Lengths are eight bytes in both,
/// and `usize` in the program.
const POINTER_BYTES: usize = size_of::<usize>();
const _: () = assert!(
    POINTER_BYTES == if cfg!(target_family = "wasm") { 4 } else { 8 },
    "Evermap needs 64-bit pointers, and 32-bit ones in a sandbox"
);

/// A type whose values can lie in an object.
///
/// Use `#[derive(Persist)]`: it checks that the layout is fixed (`#[repr(C)]`) and that every field
/// is itself `Persist`, and generates the implementation. It also generates two companion types:
///
/// * `NotesFields<'a>`: one [`Mut`] per field, from [`Mut::fields`], so that several fields can be
///   edited at the same time;
/// * `NotesInit<..>`: an ordinary struct with one *source* per field, from which a `Notes` is built
///   in place (see [`Build`]).
///
/// Scalars, arrays, [`PString`], [`PVec`], [`PMap`], [`PTextMap`], [`PBTree`], [`PBox`],
/// `Option<PBox<T>>` and [`Ptr`] are `Persist`. `Box`, `Vec`, `String`, references, closures, `dyn
/// Trait`, cells and locks are not: the memory that they point to does not exist in the next run.
///
/// Values in an object are never dropped. They are released, which frees their memory in the
/// object. So the derive refuses types that implement [`Drop`].
///
/// ```
/// use evermap::{PString, PVec, Persist, Scratch};
///
/// #[derive(Persist)]
/// #[repr(C)]
/// struct Notes {
///     title: PString,
///     lines: PVec<PString>,
///     edits: u64,
/// }
///
/// let mut object = Scratch::<Notes>::new(NotesInit {
///     title: "to do",
///     lines: ["buy milk", "call home"],
///     edits: 0,
/// })?;
/// let mut notes = object.root_mut();
/// let mut notes = notes.fields();
/// notes.lines.push("sleep")?;
/// *notes.edits += 1;
///
/// assert_eq!(object.root().title, "to do");
/// assert_eq!(object.root().lines, ["buy milk", "call home", "sleep"]);
/// # Ok::<(), evermap::Error>(())
/// ```
///
/// # Safety
///
/// An implementation by hand must guarantee that
///
/// * the layout is the same for every compiler and crate version (`repr(C)` or a primitive), and
///   [`describe`](Persist::describe) names everything in it;
/// * a value holds no pointer except to memory of the same object that it owns, or a [`Ptr`];
/// * [`release`](Persist::release) frees exactly what the value owns, and [`OWNS`](Persist::OWNS)
///   is `false` only if that is nothing;
/// * a type that is `Copy` owns nothing;
/// * no safe code can obtain a value that owns something, or a `&mut` to one;
/// * [`fields`](Persist::fields) returns cursors that don't overlap.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be kept in an object",
    label = "`{Self}` doesn't implement `Persist`",
    note = "your own type: add `#[derive(evermap::Persist)]` and `#[repr(C)]` to it",
    note = "a container of the standard library keeps its elements in the process's own heap, which is gone in the next run: use `evermap::PVec`, `PString`, `PMap`, `PBTree` or `PBox`",
    note = "`usize` and `isize` differ between machines: use `u64` and `i64`"
)]
pub unsafe trait Persist: Sized + 'static {
    /// Result of [`Mut::fields`]: for a derived struct, a struct with one [`Mut`] per field; for an
    /// array, an array of cursors; for every other type the cursor itself.
    type Fields<'a>;

    /// True if a value can own memory. With `false`, containers skip the release of their elements.
    const OWNS: bool;

    /// Splits a cursor into cursors to the fields. Call it as [`Mut::fields`].
    fn fields(this: Mut<'_, Self>) -> Self::Fields<'_>;

    /// Writes the type's part of the canonical description: see [`type_description`].
    fn describe(description: &mut Description);

    /// Frees everything that the value owns. Its bytes are invalid afterwards.
    ///
    /// # Safety
    ///
    /// `this` is a valid value in the releaser's object without other users. It is overwritten or
    /// freed before it is used as a `Self` again.
    unsafe fn release(this: NonNull<Self>, releaser: &mut Releaser<'_>);

    /// Returns false if a pointer in the value's own bytes leads out of the object, or a length
    /// exceeds its block. Called for a root before any other use, because its bytes may be damaged.
    /// Follows no pointer. Types without pointers keep the default.
    ///
    /// # Safety
    ///
    /// `this` is aligned and its bytes may be read. They need not be a valid value.
    unsafe fn is_bounded(this: NonNull<Self>, bounds: &Bounds<'_>) -> bool {
        let _ = (this, bounds);
        true
    }
}

/// A [`Persist`] type without pointers, whose bits have the same meaning at any address.
///
/// [`Mut`] gives a `&mut T` ([`DerefMut`](std::ops::DerefMut)) only for these types, and a [`PVec`]
/// of them a `&mut [T]`. Scalars and arrays of them are `Plain`. So is a struct or a fieldless enum
/// with `#[derive(Clone, Copy, Persist, Plain)]` whose fields are all `Plain`.
///
/// Padding between fields is allowed. Its bytes are written to the object as the compiler left
/// them. If a file's bytes must be reproducible, order fields by decreasing alignment, or declare
/// the gaps as fields.
///
/// ```
/// use evermap::{Persist, Plain, PVec, Scratch};
///
/// #[derive(Clone, Copy, Debug, PartialEq, Persist, Plain)]
/// #[repr(C)]
/// struct Point { x: f64, y: f64 }
///
/// let mut object = Scratch::<PVec<Point>>::new([Point { x: 1.0, y: 2.0 }])?;
/// for point in object.root_mut().as_mut_slice() {
///     point.x += 1.0;
/// }
/// assert_eq!(object.root()[0], Point { x: 2.0, y: 2.0 });
/// # Ok::<(), evermap::Error>(())
/// ```
///
/// # Safety
///
/// No part of a value is a pointer or represents an address.
#[diagnostic::on_unimplemented(
    message = "`{Self}` isn't `Plain`, so safe code gets no `&mut` to it",
    label = "`{Self}` may hold pointers into its object",
    note = "edit it through its `evermap::Mut` cursor: `.fields()`, `.set(..)`, `.assign(..)` or the container's own methods",
    note = "if it holds no pointers: `#[derive(Clone, Copy, Persist, Plain)]`"
)]
pub unsafe trait Plain: Persist + Copy {}
