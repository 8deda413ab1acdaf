//! Parsers of files in `/proc`, which several crates read.
//!
//! Each parses text, so that a caller can read the file of another process, or a recorded one.
//! Lines that do not have the kernel's format are skipped.

mod fields;
mod groups;
mod maps;
mod mounts;

pub use fields::{bytes_of, field, own_status, status_bytes};
pub use groups::{Membership, memberships};
pub use maps::{Mapping, mappings};
pub use mounts::{Mount, mounts, own_mounts};
