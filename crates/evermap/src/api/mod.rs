//! The safe interface: stores, snapshots, sessions, batches.
//!
//! This layer joins names to objects. It owns the rules that hold between objects (one mapping of
//! an object in a process, one catalog, address leases) and the types that make Rust's borrow
//! checker enforce what the layers below promise.

mod addresses;
mod application;
mod batch;
mod catalog;
pub mod guest;
mod home;
mod info;
mod inner;
mod options;
mod session;
mod share;
mod snapshot;
mod store;
mod store_files;

pub(crate) use addresses::arenas::{
    arena_for_rebase, known_arenas, overlapping_arenas, record_arenas,
};
pub(crate) use catalog::creation::{NewCatalog, write_catalog};
pub(crate) use catalog::import::Import;
pub(crate) use inner::{refuse_open_here, was_replaced};

pub use application::ApplicationKey;
pub use batch::Batch;
pub use info::ObjectInfo;
pub use options::{ARENA_BYTES_DEFAULT, Options, Verify};
pub use session::{
    Migrations, Protected, ProtectedRawSession, ProtectedSession, RawRoot, RawSession,
    RawWriteScope, Session, WritePass, WritePermit, WriteScope,
};
pub use share::{RawShared, Reads, ShareOptions, Shared, SharedRead, SharedWrite};
pub use snapshot::{RawSnapshot, Snapshot};
pub use store::Store;
