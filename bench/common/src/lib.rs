//! What the benchmarks of whole programs stand on: file systems to measure on, programs and what they cost, figures and
//! how they are printed. Nothing here knows what is measured.
//!
//! From the bottom: `ends` and `guard` (nothing stays behind, however a run ends; `leftovers` is how tests look for it),
//! `process` (one program, and what it cost), `counting` and `profile` (what the kernel counts and samples of it),
//! `loop_device` and `grounds` (file systems to measure on), `caches`, `memory` and `settings` (what is there when a step
//! begins), `quiet`, `random`, `samples`, `units`, `raw`, `goals`, `table` and `plots` (figures), `options`, `bench` (what
//! every section is given) and `machine` (what was measured on).
//!
//! `quiet`, `random`, `samples` and `table` use nothing of this crate but `Outcome`: benchmarks that draw and mount nothing
//! take just those, by their path.

pub mod bench;
pub mod caches;
pub mod counting;
pub mod ends;
pub mod goals;
pub mod grounds;
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

/// Whatever goes wrong in a measurement ends it.
pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;
