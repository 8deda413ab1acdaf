//! Lanes on emulated machines: control groups of version 2 alone and beside version 1, one core,
//! cores that are switched off, persistent memory, and power cuts.
//!
//! All tests run inside a machine booted by `make test-vm` (see `crates/evermap/tests/vm`): as
//! root, with few other programs, and with the `evermap` command as `/bin/evermap`. On any other
//! machine each test reports that it is skipped, and changes nothing.
#![allow(clippy::unwrap_used)]

mod direct;
mod groups;
mod held;
mod lanes;
mod moved;
mod offline;
mod one_core;
