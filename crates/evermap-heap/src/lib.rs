//! The heap in an Evermap object: the allocator whose state lies in the object, and the types that
//! may lie in it.
//!
//! This crate needs no file and no store. The owner of a heap maps its regions and adds new ones
//! through a [`ChunkSource`](alloc::ChunkSource). There are two owners: the crate `evermap`, whose
//! stores map files, and the crate `evermap-guest`, whose host maps objects into the memory of a
//! WebAssembly program.
//!
//! Programs use one of those two, which export this crate's public items. Only what they export is
//! stable: the hidden modules may change with any version, together with them.
//!
//! Layers, top down; a module uses only those below it: `persist` (types that may lie in an
//! object), `alloc`, `anonymous` (memory without a file), `error`, and at the bottom `format` and
//! `nvheap` (the table of named blocks).

// The derive macros refer to the crate as `evermap`, also in its own tests.
#[cfg(test)]
extern crate self as evermap;

#[doc(hidden)]
pub mod alloc;
#[doc(hidden)]
pub mod anonymous;
mod error;
#[doc(hidden)]
pub mod format;
#[doc(hidden)]
pub mod nvheap;
#[doc(hidden)]
pub mod persist;

pub use alloc::{ClassStatistics, Heap, HeapStatistics};
pub use error::{HeapError, Result};
#[cfg(feature = "serde")]
pub use persist::serde;
pub use persist::{
    Bounds, Build, Built, Description, Detached, FieldChange, FieldShape, FromIter, IterMut,
    KeySource, Mut, PBTree, PBox, PMap, PString, PTextMap, PVec, Persist, PersistHash, Plain, Ptr,
    Releaser, SchemaDifference, Scratch, Slot, TextIter, TypeId128, btree, from_iter, map,
    type_description, type_id,
};

#[doc(hidden)]
pub use persist::private as __private;

#[cfg(all(test, feature = "serde"))]
pub use evermap_derive::PersistDeserialize;
#[cfg(test)]
pub use evermap_derive::{Persist, PersistHash, Plain};
