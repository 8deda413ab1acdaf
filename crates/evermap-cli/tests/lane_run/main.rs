//! `evermap lane run`, `status`, `undo`. After any kill nothing is left, child processes of a
//! program are ordinary ones, and settings that cannot be applied are reported.
//!
//! Some tests run ignored tests of this program as child processes, in a lane or with a lane. All
//! state is in a temporary directory of the test. Cpusets belong to the machine, so tests that hold
//! a core run alone and have `hold` in their names. Their leftovers are removed in any case.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
#[macro_use]
mod place;
mod children;
mod claims;
mod core_offline;
mod guardian;
mod hold;
mod journals;
mod killing;
mod program;
mod rights;
mod scheduling;
mod system;
mod tier;
