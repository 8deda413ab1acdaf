//! Tests of the library from C programs, compiled against the files that `make install` would
//! install. The programs in `tests/c` make the checks; the tests here check their exit and output.

#![allow(clippy::unwrap_used)]

mod bad_input;
mod builds;
mod forks;
mod headers;
mod install;
mod processes;
mod programs;
mod readme;
mod staged;
#[path = "../../../evermap-cli/tests/common/walkthrough.rs"]
mod walkthrough;
