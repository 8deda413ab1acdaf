//! Tests of lanes for threads of this program, and of the benchmark: missing rights, overruns,
//! forks, panics, and changing files.
//!
//! Tests that need a separate process (limits, another user, a fork) start an ignored test of this
//! program as a child.
#![allow(clippy::unwrap_used)]

mod bench;
mod common;
mod files;
#[path = "../../../evermap-cli/tests/common/programs.rs"]
mod programs;
mod rights;
mod threads;
