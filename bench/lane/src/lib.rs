//! Benchmark of lanes: the benefit of each part of a lane for programs with deadlines, and its cost
//! for other programs.
//!
//! From the bottom: `stress` (the load), `ffmpeg` (a real decoder), `watched` (takes a decoder's
//! frames and their times), `child` (runs this program as one of the measured programs), `sections`
//! (questions and tables).

pub mod bench;
pub mod child;
pub mod ffmpeg;
pub mod sections;
pub mod stress;
pub mod watched;
