//! The library as programs see it: C programs are compiled against what `make install` would
//! install, and run. What they check stands in `tests/c`; here is how they end and what they say.

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
