//! The platform that maps objects: the host for a guest in a sandbox, a store for a native program.
//! Both have a [`Writer`] and a [`Reader`] with the same methods, so the code above is the same.

#[cfg(not(target_family = "wasm"))]
mod native;
#[cfg(target_family = "wasm")]
mod sandbox;

#[cfg(not(target_family = "wasm"))]
pub use native::use_store;
#[cfg(not(target_family = "wasm"))]
pub(crate) use native::{Reader, Writer};
#[cfg(target_family = "wasm")]
pub(crate) use sandbox::{Reader, Writer};
