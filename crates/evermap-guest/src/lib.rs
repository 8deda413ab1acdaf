//! Persistent heaps for WebAssembly guests.
//!
//! A guest opens a [`Heap`] by name, builds data structures in it and commits. The next run finds
//! them with their pointers, at once and whatever their size. The host maps the heap into the
//! guest's memory, so loads, stores and allocations are the guest's own instructions. The guest
//! calls the host only to open a heap, to grow it and to commit.
//!
//! A heap contains [`PVec`], [`PMap`] and the other containers, structs that derive [`Persist`], or
//! blocks of bytes.
//!
//! ```
//! # let directory = tempfile::tempdir()?;
//! # evermap_guest::use_store(directory.path().join("store"))?;
//! use evermap_guest::{Heap, PString, PVec, Persist};
//!
//! #[derive(Persist)]
//! #[repr(C)]
//! struct Diary { lines: PVec<PString>, runs: u64 }
//!
//! let mut heap = Heap::open("diary")?;
//! let mut diary = heap.root_or::<Diary, _>(Diary { lines: PVec::new(), runs: 0 })?;
//! let mut diary = diary.fields();
//! *diary.runs += 1;
//! diary.lines.push("was here")?;
//! heap.commit()?;
//! # heap.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Built for Linux, the same program keeps its heaps in the store that the environment variable
//! `EVERMAP_STORE` names. The README describes how guests are linked, and guests in C.

mod block_writer;
mod blocks;
#[cfg(all(feature = "c", target_family = "wasm"))]
mod c;
mod error;
mod heap;
#[cfg(target_family = "wasm")]
mod imports;
mod names;
mod platform;
mod root;
#[cfg(any(test, target_family = "wasm"))]
mod root_entry;
mod snapshot;
#[cfg(any(test, target_family = "wasm"))]
mod stat;

pub use block_writer::BlockWriter;
pub use error::{Code, Error, Result};
#[cfg(feature = "serde")]
pub use evermap_derive::GuestPersistDeserialize as PersistDeserialize;
pub use evermap_derive::{
    GuestPersist as Persist, GuestPersistHash as PersistHash, GuestPlain as Plain,
};
#[cfg(feature = "serde")]
#[doc(inline)]
pub use evermap_heap::serde;
#[doc(inline)]
pub use evermap_heap::{
    Bounds, Build, Built, Description, Detached, FromIter, HeapError, IterMut, KeySource, Mut,
    PBTree, PBox, PMap, PString, PTextMap, PVec, Persist, PersistHash, Plain, Ptr, Releaser,
    Scratch, Slot, TextIter, TypeId128, btree, from_iter, map, type_description, type_id,
};
pub use heap::Heap;
#[cfg(not(target_family = "wasm"))]
pub use platform::use_store;
pub use root::RawRoot;
pub use snapshot::Snapshot;

// For the output of the derive macros.
#[doc(hidden)]
pub use evermap_heap::__private;
