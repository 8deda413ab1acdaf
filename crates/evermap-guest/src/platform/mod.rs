//! Who maps objects: the sandbox's host for a guest, a store of its own for a native program. Both
//! are a [`Writer`] and a [`Reader`] with the same methods; everything above is one source.

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
