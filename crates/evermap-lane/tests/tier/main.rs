//! Integration tests of the tier: plans, views, switched files, and cleanup.
//!
//! A test that needs another user starts an ignored test of this program as a helper process.
#![allow(clippy::unwrap_used)]

mod common;
mod copies;
mod plans;
#[path = "../../../evermap-cli/tests/common/programs.rs"]
mod programs;
mod switched;
mod views;
