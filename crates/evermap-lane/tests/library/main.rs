//! Lanes for one's own threads, and the benchmark: what they promise when rights are missing, when programs overrun, fork or panic, when files change.
//!
//! What needs a process of its own (limits, another user, a fork) is an *act*: an ignored test that another one starts as a program.
#![allow(clippy::unwrap_used)]

mod bench;
mod common;
mod files;
#[path = "../../../evermap-cli/tests/common/programs.rs"]
mod programs;
mod rights;
mod threads;
