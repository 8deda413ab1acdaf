//! Tests of machine descriptions and checks, with simulated machines made of files.
#![allow(clippy::unwrap_used)]

mod checks;
mod choice;
mod groups;
mod mock;
#[path = "../../../evermap-cli/tests/common/programs.rs"]
mod programs;
