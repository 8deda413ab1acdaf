//! Shared harness of the benchmarks that start whole programs: file systems to measure on,
//! processes and their cost, figures and their output. It knows nothing of the subjects.
//!
//! From the bottom: `ends` and `guard` (cleanup at every kind of end; `leftovers` checks it in
//! tests), `process` (one program and its cost), `counting` and `profile` (system calls and samples
//! of a program), `loop_device` and `volumes` (file systems to measure on), `caches`, `memory` and
//! `settings` (state of the machine at the start of a step), `quiet`, `random`, `samples`, `units`,
//! `raw`, `goals`, `table` and `plots` (figures), `options`, `bench` (state that every section
//! receives) and `machine` (description of the machine).
//!
//! `quiet`, `random`, `samples` and `table` use nothing of this crate but `Outcome`: benchmarks
//! that draw and mount nothing include just these files, by path.

pub mod bench;
pub mod caches;
pub mod counting;
pub mod ends;
pub mod goals;
pub mod guard;
pub mod leftovers;
pub mod loop_device;
pub mod machine;
pub mod memory;
pub mod options;
pub mod plots;
pub mod process;
pub mod profile;
pub mod quiet;
pub mod random;
pub mod raw;
pub mod samples;
pub mod settings;
pub mod table;
pub mod units;
pub mod volumes;

/// Result of a step. Any error ends the measurement.
pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;
