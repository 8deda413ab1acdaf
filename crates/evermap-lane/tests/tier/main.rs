//! The tier: what is placed, what a program in a view sees, and what is left.
//!
//! What needs another user is an *act*: an ignored test that another one starts as a program.
#![allow(clippy::unwrap_used)]

mod common;
mod copies;
mod plans;
#[path = "../../../evermap-cli/tests/common/programs.rs"]
mod programs;
mod switched;
mod views;
