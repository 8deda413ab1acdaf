//! The safe interface: stores, snapshots, sessions, batches.
//!
//! This layer joins names to objects. It owns the rules that hold between objects (one mapping of
//! an object in a process, one catalog, address leases) and the types that make Rust's borrow
//! checker enforce what the layers below promise.

mod arenas;
mod batch;
mod catalog_access;
mod info;
mod inner;
mod leases;
mod mend;
mod new_catalog;
mod options;
mod publish;
mod registry;
mod registry_lines;
mod session;
mod snapshot;
mod store;
mod sweep;

pub(crate) use arenas::note_arenas;
pub(crate) use inner::refuse_open_here;
pub(crate) use new_catalog::{NewCatalog, write_catalog};

pub use batch::Batch;
pub use info::ObjectInfo;
pub use options::{ARENA_BYTES_DEFAULT, Options, Verify};
pub use session::Session;
pub use snapshot::Snapshot;
pub use store::Store;
