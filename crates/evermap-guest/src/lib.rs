//! A heap that lasts for WebAssembly guests.
//!
//! A guest opens a [`Heap`] by name, builds what it wants there and commits it: in its next run
//! that is there, with its pointers, at once, whatever its size. The host maps the heap into the
//! guest's own memory; loads, stores and allocations are the guest's own instructions, and a call
//! crosses the wall of the sandbox to open a heap, to let it grow and to commit.
//!
//! What lies in a heap are the types of the crate [`evermap`]: [`evermap::PVec`],
//! [`evermap::PMap`], structs that derive [`evermap::Persist`], or blocks of bytes.
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
//! The same program built for Linux keeps its heaps in the store that the environment variable
//! `EVERMAP_STORE` names. How a guest is linked, and C, is said in the README.

mod blocks;
#[cfg(all(feature = "c", target_family = "wasm"))]
mod c;
mod error;
mod filling;
mod heap;
#[cfg(target_family = "wasm")]
mod imports;
mod names;
mod platform;
mod root;
mod snapshot;
#[cfg(any(test, target_family = "wasm"))]
mod stat;

pub use error::{Code, Error, Result};
pub use filling::BlockWriter;
pub use heap::Heap;
#[cfg(not(target_family = "wasm"))]
pub use platform::use_store;
pub use root::RawRoot;
pub use snapshot::Snapshot;
