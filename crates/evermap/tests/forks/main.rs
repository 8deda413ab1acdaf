//! Forked children: what they inherit stays as it was at the fork, whatever their parent and other
//! processes do, and nothing of the parent's stays locked by them.
//!
//! Each test starts this program again for the parent (see [`common::child`]), because a test program
//! has many threads. Four kinds of children are made, `EVERMAP_FORKS` (1,000) of each, beside a writer
//! that commits and applies its commits all the time.

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
