//! Tree copies: preserved attributes, merges, failures.
#![allow(clippy::unwrap_used)]

mod attributes;
mod child;
mod compare;
mod engines;
mod failures;
mod kills;
mod make;
mod merges;
#[path = "../../../evermap-cli/tests/common/programs.rs"]
mod programs;
mod shapes;
mod unprivileged;
