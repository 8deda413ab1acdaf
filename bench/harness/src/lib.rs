//! Harness of all areas: file systems to measure on, processes and their cost, figures and their
//! output. It knows nothing of the subjects.
//!
//! From the bottom: `units`, `random`, `samples`, `table`, `raw`, `goals` and `plots` (figures and
//! their output), `ends` and `guard` (cleanup at every kind of end; `testing` checks it),
//! `running`, `process` and `children` (one program and its cost), `counting` and `profile` (system
//! calls and samples of a program), `loop_device` and `volumes` (file systems to measure on),
//! `files`, `caches`, `memory`, `settings` and `quiet` (state of the machine at the start of a
//! step), `options` and `bench` (state that every section receives), `machine` (description of the
//! machine), `compete` (subjects in turns), `area` (entry point of an area's program).

pub mod area;
pub mod bench;
pub mod caches;
pub mod children;
pub mod compete;
pub mod counting;
pub mod ends;
pub mod files;
pub mod goals;
pub mod guard;
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
pub mod running;
pub mod samples;
pub mod settings;
pub mod table;
pub mod testing;
pub mod units;
pub mod volumes;

/// Result of a step. Any error ends the measurement.
pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;
