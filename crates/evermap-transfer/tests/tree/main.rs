//! Trees: what is kept, what is merged, what is left when something goes wrong.
#![allow(clippy::unwrap_used)]

mod child;
mod compare;
mod failures;
mod keeps;
mod kills;
mod make;
mod merges;
#[path = "../../../evermap-cli/tests/common/programs.rs"]
mod programs;
mod shapes;
mod unprivileged;
mod ways;
