//! Lanes on machines that the one at hand is not: control groups of version 2 alone and beside version 1, one core, cores that are really switched off,
//! persistent memory, a power cut.
//!
//! All of it runs inside a machine that `make test-vm` boots (`crates/evermap/tests/vm` is what boots it): as root, as nearly the only program, with
//! the `evermap` command as `/bin/evermap`. Anywhere else each test says that it is skipped, and changes nothing.
#![allow(clippy::unwrap_used)]

mod direct;
mod groups;
mod held;
mod lanes;
mod moved;
mod offline;
mod one_core;
