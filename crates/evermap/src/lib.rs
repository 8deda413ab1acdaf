//! Evermap keeps a program's data mapped between runs.
//!
//! A [`Store`] is a directory of named objects. An object is a heap in a file, mapped at the same
//! addresses in every process. Data structures that a program builds in it, pointers included, are
//! available in the next run at once, whatever their size. Between commits the program works at raw
//! memory speed. [`Session::commit`] makes all changes durable, all of them or none.
//!
//! ```
//! use evermap::{PMap, PString, PVec, Persist, Store};
//!
//! #[derive(Persist)]
//! #[repr(C)]
//! struct Index { pages: PMap<PString, PVec<u32>>, runs: u64 }
//!
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("store");
//! let store = Store::open_or_create(&path)?;
//! store.create::<Index, _>("words", IndexInit { pages: PMap::new(), runs: 0 })?;
//!
//! let mut session = store.write::<Index>("words")?;
//! let mut root = session.root_mut();
//! root.fields().pages.insert("map", [1, 5, 9])?;
//! *root.fields().runs += 1;
//! session.commit()?;
//! session.close()?;
//!
//! let index = store.read::<Index>("words")?; // in this process or in any later one
//! assert_eq!(index.pages.get("map").map(|p| p.len()), Some(3));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Layers, top down; a module uses only those below it: [`tools`] (check, backup), `api` (stores,
//! snapshots, sessions), `object` (superblock, regions, root), `catalog` (names) and `commit`,
//! `address`, `storage`, `at_fork`, `error`, and at the bottom `checksum`, `format`, `layout` and
//! `mutate`. The allocator and the types that may lie in an object are in the crate `evermap-heap`,
//! which guests use without stores.

// The derive macros refer to the crate as `evermap`, also inside the crate.
extern crate self as evermap;

mod address;
mod api;
mod at_fork;
/// Fork detection, for the C library.
#[doc(hidden)]
pub mod __forks {
    /// Starts to detect forks. Must be called before anything is locked or mapped.
    pub fn watch() {
        crate::at_fork::watch();
    }

    /// Returns true in a child, however made, of the process that called [`watch`] first.
    pub fn is_child() -> bool {
        crate::at_fork::is_child()
    }
}
mod catalog;
mod checksum;
mod commit;
mod error;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod layout;
mod mutate;
mod object;
#[cfg(test)]
mod simulation;
mod storage;
pub mod tools;

pub use address::{Access, AccessKey, ThreadRights, Window};
pub use api::guest;
pub use api::{
    ARENA_BYTES_DEFAULT, ApplicationKey, Batch, Migrations, ObjectInfo, Options, Protected,
    ProtectedRawSession, ProtectedSession, RawRoot, RawSession, RawShared, RawSnapshot,
    RawWriteScope, Reads, Session, ShareOptions, Shared, SharedRead, SharedWrite, Snapshot, Store,
    Verify, WritePass, WritePermit, WriteScope,
};
pub use commit::{Durability, ForeignPointers, InChildren, WhenLogFull, WriteOptions};
pub use error::{Error, Result};
#[cfg(feature = "serde")]
pub use evermap_derive::PersistDeserialize;
pub use evermap_derive::{Persist, PersistHash, Plain};
#[cfg(feature = "serde")]
#[doc(inline)]
pub use evermap_heap::serde;
#[doc(inline)]
pub use evermap_heap::{
    Bounds, Build, Built, ClassStatistics, Description, Detached, FieldChange, FieldShape,
    FromIter, Heap, HeapError, HeapStatistics, IterMut, KeySource, Mut, PBTree, PBox, PMap,
    PString, PTextMap, PVec, Persist, PersistHash, Plain, Ptr, Releaser, SchemaDifference, Scratch,
    Slot, TextIter, TypeId128, btree, from_iter, map, type_description, type_id,
};
pub use object::{ActiveProtection, ForeignPointer, Protection};

// For the output of the derive macros.
#[doc(hidden)]
pub use evermap_heap::__private;
/// Named blocks, for the C library.
#[doc(hidden)]
pub use evermap_heap::{__nvheap_functions, nvheap as __nvheap};

// Modules of the heap, for this crate's own.
use evermap_heap::{alloc, persist};

// The examples of the how-to pages run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/backup.md")]
struct HowToBackup;
#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/errors.md")]
struct HowToErrors;
#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/migration.md")]
struct HowToMigration;
#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/moving.md")]
struct HowToMoving;
#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/sizing.md")]
struct HowToSizing;
#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/threads.md")]
struct HowToThreads;
#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/update.md")]
struct HowToUpdate;
