//! Hard cases: guarantees of images when the kernel, the disk, other programs or other threads
//! misbehave.
//!
//! Tests that need special rights, limits or filters are *child tests*: ignored tests that another
//! test starts as a process.
#![allow(clippy::unwrap_used)]

mod changes;
mod common;
mod drops;
mod failing;
mod file_systems;
mod forks;
mod limits;
mod memory;
mod names;
#[path = "../../../evermap-cli/tests/common/programs.rs"]
mod programs;
mod rights;
mod served;
mod shapes;
mod threads;
mod unsized_files;
