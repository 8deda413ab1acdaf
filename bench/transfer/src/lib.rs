//! Measures transfers: every engine of `evermap copy`, `send` and `receive` beside the programs that people copy with,
//! as whole new processes in the same run.
//!
//! What is measured, and how, stands at the top of each file in `sections`. From the bottom: `ends` (nothing stays
//! behind, however the run ends), `loop_device`, `grounds` (file systems to measure on), `corpus` (what is copied),
//! `process` (one program, and what it cost), `counting` and `profile` (what the kernel counts and samples of it),
//! `subjects` (who copies), `compete` (in turns, and right), and the sections with their tables and plots.

pub mod bench;
pub mod caches;
pub mod check;
pub mod compete;
pub mod corpus;
pub mod counting;
pub mod ends;
pub mod goals;
pub mod grounds;
pub mod guard;
pub mod in_process;
pub mod loop_device;
pub mod machine;
pub mod memory;
pub mod network;
pub mod nginx;
pub mod options;
pub mod plots;
pub mod process;
pub mod profile;
pub mod raw;
pub mod sections;
pub mod subjects;
pub mod units;

// As in the other benchmarks: repeated measurements, quiet moments to make them in, numbers that are the same in
// every run, and tables.
#[allow(dead_code, clippy::new_without_default)]
#[path = "../../src/quiet.rs"]
pub mod quiet;
#[allow(dead_code)]
#[path = "../../src/random.rs"]
pub mod random;
#[allow(dead_code)]
#[path = "../../src/samples.rs"]
pub mod samples;
#[path = "../../sandbox/runner/src/table.rs"]
pub mod table;

/// Whatever goes wrong in a measurement ends it.
pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;
