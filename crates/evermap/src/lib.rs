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
//! `persist` (types that may lie in an object), `alloc`, `address`, `storage`, `at_fork`, `error`,
//! and at the bottom `checksum`, `format`, `layout`, `mutate` and `schema_difference`.

// A guest in a sandbox has only the allocator and the containers. Its host has files and mappings,
// so code that only they use is dead in a guest.
#![cfg_attr(target_family = "wasm", allow(dead_code, unused_imports))]

// The derive macros refer to the crate as `evermap`, also inside the crate.
extern crate self as evermap;

#[doc(hidden)]
#[path = "guest_side.rs"]
pub mod __guest;
#[cfg(target_family = "wasm")]
#[path = "address/guest.rs"]
mod address;
#[cfg(not(target_family = "wasm"))]
mod address;
mod alloc;
#[cfg(not(target_family = "wasm"))]
mod api;
#[cfg(not(target_family = "wasm"))]
mod at_fork;
/// Fork detection, for the C library.
#[cfg(not(target_family = "wasm"))]
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
#[cfg(not(target_family = "wasm"))]
mod catalog;
#[cfg(not(target_family = "wasm"))]
mod checksum;
#[cfg(not(target_family = "wasm"))]
mod commit;
mod error;
mod format;
#[cfg(all(any(test, feature = "fuzzing"), not(target_family = "wasm")))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(not(target_family = "wasm"))]
mod layout;
#[cfg(not(target_family = "wasm"))]
mod mutate;
#[cfg(not(target_family = "wasm"))]
mod object;
mod persist;
mod schema_difference;
#[cfg(all(test, not(target_family = "wasm")))]
mod simulation;
#[cfg(not(target_family = "wasm"))]
mod storage;
#[cfg(not(target_family = "wasm"))]
pub mod tools;

#[cfg(not(target_family = "wasm"))]
pub use address::{Access, AccessKey, ThreadRights, Window};
pub use alloc::{ClassStatistics, Heap, HeapStatistics};
#[cfg(not(target_family = "wasm"))]
pub use api::guest;
#[cfg(not(target_family = "wasm"))]
pub use api::{
    ARENA_BYTES_DEFAULT, ApplicationKey, Batch, Migrations, ObjectInfo, Options, Protected,
    ProtectedRawSession, ProtectedSession, RawRoot, RawSession, RawShared, RawSnapshot,
    RawWriteScope, Reads, Session, ShareOptions, Shared, SharedRead, SharedWrite, Snapshot, Store,
    Verify, WritePass, WritePermit, WriteScope,
};
#[cfg(not(target_family = "wasm"))]
pub use commit::{Durability, ForeignPointers, InChildren, WhenLogFull, WriteOptions};
pub use error::{Error, Result};
#[cfg(feature = "serde")]
pub use evermap_derive::PersistDeserialize;
pub use evermap_derive::{Persist, PersistHash, Plain};
#[cfg(not(target_family = "wasm"))]
pub use object::{ActiveProtection, ForeignPointer, Protection};
#[cfg(feature = "serde")]
pub use persist::serde;
pub use persist::{
    Bounds, Build, Built, Description, Detached, FromIter, IterMut, KeySource, Mut, PBTree, PBox,
    PMap, PString, PVec, Persist, PersistHash, Plain, Ptr, Releaser, Scratch, Slot, TypeId128,
    btree, from_iter, map, type_description, type_id,
};
pub use schema_difference::{FieldChange, FieldShape, SchemaDifference};

#[doc(hidden)]
pub use persist::private as __private;

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
