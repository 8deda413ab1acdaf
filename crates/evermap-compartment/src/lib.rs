//! Two guards for a native process that keeps Evermap objects.
//!
//! *Compartments*, inside: each thread is in a class, and may read or store into the objects that
//! the class has rights to. Anything else is a fault, where it happens. They are made of memory
//! protection keys and cost some 20 ns a switch. They guard against bugs: code that wants to get around
//! them can.
//!
//! The *outer wall*, around: a process that has mapped what it needs closes itself in for the rest of
//! its life, by Landlock and seccomp; or a program is started inside of one. This is the wall for
//! code that is not trusted, and what it keeps in is the whole process.
//!
//! `docs/compartments.md` says what each promises and what it does not.

pub mod compartments;
mod error;
pub mod wall;

pub use error::{Error, Result};
