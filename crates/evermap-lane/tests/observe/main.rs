//! Observes processes of several kinds from outside. The observed processes are ignored tests of
//! this program, started as children.
#![allow(clippy::unwrap_used)]

#[path = "../../../evermap-cli/tests/common/programs.rs"]
mod programs;
mod refusals;
mod rhythms;
mod workloads;
