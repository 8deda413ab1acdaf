//! Addresses of a store's objects: which arenas it has, which of their ranges are leased, and the
//! arenas of the user's other stores.

pub(super) mod arenas;
pub(super) mod leases;
mod registry;
mod registry_lines;
