//! WebAssembly guests with heaps that last: Evermap objects in a guest's own linear memory.
//!
//! A guest maps an object by name and finds it at the same address of its memory in every run, with
//! its pointers. Loads, stores and allocations there cost what they cost in any memory; a call
//! crosses the sandbox's wall to open a heap, to let it grow and to commit. Guests in Rust use
//! the crate `evermap-guest`, guests in C `nvheap.h`.
//!
//! [`Sandbox`] is an engine with a store; a [`Guest`] is one instance of a module, run as an
//! application, which the [`AccessTable`] gives rights to. Nothing that a guest does ends the host:
//! see [`FaultGuard`], and `docs/sandbox.md` for the whole of it.
//!
//! The layers, top down: `sandbox` and `guest` (engines, instances), `heaps` (what an instance has
//! mapped, and its imports), `access` (rights and addresses), `module` and `application` (who is who),
//! `guard` (faults), `budget` (what a guest may grow), `preopens` (directories that it sees).

mod access;
mod application;
mod budget;
mod codes;
mod error;
mod guard;
mod guest;
mod heaps;
mod kept;
mod key_ring;
mod layout;
mod module;
mod names;
mod preopens;
mod report;
mod sandbox;

pub use access::{
    Access, AccessTable, ApplicationRow, Change, Level, ModuleBinding, ObjectRow,
    QUOTA_BYTES_DEFAULT, RightRow,
};
pub use application::{ApplicationId, SecretKey};
pub use codes::Code;
pub use error::{Error, Result};
pub use evermap::guest::{GuestReaders, Unmapped};
pub use guard::{Fault, FaultGuard};
pub use guest::{End, Guest, GuestOptions, State};
pub use key_ring::KeyRing;
pub use module::{ModuleIdentity, public_key_of};
pub use names::ObjectName;
pub use report::Report;
pub use sandbox::{Application, Module, Sandbox, SandboxOptions};
pub use wasmtime;
