//! Protection for a native process that holds Evermap objects, in two forms.
//!
//! *Compartments* work inside the process. Each thread is in a class and can load from or store
//! into only the objects that the class has rights to. Any other access faults at once.
//! Compartments use memory protection keys and cost about 20 ns a switch. They catch bugs. Hostile
//! code can bypass them.
//!
//! The *outer wall* works around the process. A process that has mapped what it needs restricts
//! itself for the rest of its life with Landlock and seccomp. A program can also be started behind
//! a wall. The wall is for untrusted code and always confines the whole process.
//!
//! `docs/compartments.md` lists the guarantees and limits of both.

pub mod compartments;
mod error;
pub mod wall;

pub use error::{Error, Result};
