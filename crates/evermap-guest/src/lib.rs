//! Persistent heaps for WebAssembly guests.
//!
//! A guest opens a [`Heap`] by name, builds data structures in it and commits. The next run finds
//! them with their pointers, at once and whatever their size. The host maps the heap into the
//! guest's memory, so loads, stores and allocations are the guest's own instructions. The guest
//! calls the host only to open a heap, to grow it and to commit.
//!
//! A heap contains the types of the crate [`evermap`]: [`evermap::PVec`], [`evermap::PMap`],
//! structs that derive [`evermap::Persist`], or blocks of bytes.
//!
//! ```
//! # let directory = tempfile::tempdir()?;
//! # evermap_guest::use_store(directory.path().join("store"))?;
//! use evermap::{PString, PVec, Persist};
//! use evermap_guest::Heap;
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
mod snapshot;
#[cfg(any(test, target_family = "wasm"))]
mod stat;

pub use block_writer::BlockWriter;
pub use error::{Code, Error, Result};
pub use heap::Heap;
#[cfg(not(target_family = "wasm"))]
pub use platform::use_store;
pub use root::RawRoot;
pub use snapshot::Snapshot;
