//! Processes of many kinds, observed from outside. The acts are what the observed processes do: tests of this program, started as programs.
#![allow(clippy::unwrap_used)]

mod acts;
#[path = "../../../evermap-cli/tests/common/programs.rs"]
mod programs;
mod refusals;
mod rhythms;
