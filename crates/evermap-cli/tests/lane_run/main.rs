//! `evermap lane run`, `status`, `undo`: whoever dies, nothing is left; what a program starts is ordinary; what cannot be had is said.
//!
//! What a program in a lane does is an *act*: an ignored test of this program that a lane starts as its own. All state is in a directory of the
//! test's own; cpusets are the machine's, so tests that hold a core run alone, have `hold` in their names, and what they leave is taken away
//! whatever happens.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
#[macro_use]
mod place;
mod claims;
mod core_offline;
mod family;
mod guardian;
mod hold;
mod journals;
mod killing;
mod looks;
mod program;
mod rights;
mod scheduling;
mod tier;
