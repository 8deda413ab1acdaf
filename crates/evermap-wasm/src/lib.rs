//! Persistent heaps for WebAssembly guests: Evermap objects mapped into a guest's linear memory.
//!
//! A guest maps an object by name. The object has the same address in the guest's memory in every
//! run, so its pointers stay valid. Loads, stores and allocations in it cost the same as in other
//! memory. The guest calls the host only to open a heap, to grow it and to commit. Guests in Rust
//! use the crate `evermap-guest`, guests in C use `nvheap.h`.
//!
//! A [`Sandbox`] is an engine with a store. A [`Guest`] is one instance of a module. It runs as an
//! application, and the [`AccessTable`] lists the application's rights. A guest cannot end the host
//! process: see [`FaultGuard`] and `docs/sandbox.md`.
//!
//! The layers, top down: `sandbox` and `guest` (engines, instances); `heaps` (an instance's mapped
//! objects and its imports) and `preopens` (directories that a guest sees); `layout` (the memory of
//! a module); `codes` (errors for guests) and `key_ring`; `access` (rights and addresses); `module`
//! and `keys`; `application`, `guard` (faults) and `state_file`; `budget` (limits on growth),
//! `hex`, `names` and `report`.

mod access;
mod application;
mod budget;
mod codes;
mod error;
mod guard;
mod guest;
mod heaps;
mod hex;
mod key_ring;
mod keys;
mod layout;
mod module;
mod names;
mod preopens;
mod report;
mod sandbox;
mod state_file;

pub use access::{
    Access, AccessTable, ApplicationRow, Change, Level, ObjectRow, QUOTA_BYTES_DEFAULT, RightRow,
};
pub use application::SecretKey;
pub use codes::Code;
pub use error::{Error, Result};
pub use evermap::guest::{GuestReaders, Unmapped};
pub use guard::{Fault, FaultGuard};
pub use guest::{End, Guest, GuestOptions, State};
pub use key_ring::KeyRing;
pub use module::{ModuleBinding, ModuleIdentity, public_key_of};
pub use names::{ApplicationId, ObjectName};
pub use report::Report;
pub use sandbox::{Application, Module, Sandbox, SandboxOptions};
pub use wasmtime;
