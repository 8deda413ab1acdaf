//! The hard cases: what every image promises when the kernel, the disk, other programs or the rest of this one do their worst.
//!
//! What needs rights, limits or filters of its own is an *act*: an ignored test that another one starts as a program.
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
