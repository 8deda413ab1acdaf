//! The safe interface: stores, snapshots, sessions, batches.
//!
//! This layer joins names to objects. It owns the rules that hold between objects (one mapping of
//! an object in a process, one catalog, address leases) and the types that make Rust's borrow
//! checker enforce what the layers below promise.

mod application;
mod arenas;
mod batch;
mod catalog_access;
mod guarded;
pub mod guest;
mod home;
mod import;
mod info;
mod inner;
mod leases;
mod mapped_commit;
mod migration;
mod new_catalog;
mod open_session;
mod options;
mod protected;
mod publish;
mod raw;
mod registry;
mod registry_lines;
mod repair;
mod session;
mod share;
mod snapshot;
mod store;
mod store_files;
mod sweep;

pub(crate) use arenas::{arena_for_rebase, known_arenas, overlapping_arenas, record_arenas};
pub(crate) use import::Import;
pub(crate) use inner::{refuse_open_here, was_replaced};
pub(crate) use new_catalog::{NewCatalog, write_catalog};

pub use application::ApplicationKey;
pub use batch::Batch;
pub use info::ObjectInfo;
pub use migration::Migrations;
pub use options::{ARENA_BYTES_DEFAULT, Options, Verify};
pub use protected::{
    ProtectedRawSession, ProtectedSession, RawWriteScope, WritePass, WritePermit, WriteScope,
};
pub use raw::{RawRoot, RawSession, RawSnapshot};
pub use session::Session;
pub use share::{RawShared, Reads, ShareOptions, Shared, SharedRead, SharedWrite};
pub use snapshot::Snapshot;
pub use store::Store;
