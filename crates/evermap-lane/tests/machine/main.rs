//! Machines of many kinds, each as a tree of files.
#![allow(clippy::unwrap_used)]

mod checks;
mod choice;
mod groups;
mod mock;
#[path = "../../../evermap-cli/tests/common/programs.rs"]
mod programs;
