//! Forked children: inherited memory stays as it was at the fork, whatever the parent and other
//! processes do, and the child does not keep the parent's locks.
//!
//! Each test starts this program again for the parent (see [`common::child`]), because a test
//! program has many threads. There are four kinds of children, and `EVERMAP_FORKS` (default 1,000)
//! of each, concurrent with a writer that commits and applies all the time.

#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod creating;
mod guests;
mod leftovers;
mod locks;
mod many;
mod memory;
mod process;
mod shared;
mod snapshots;
