//! Measures transfers: every engine of `evermap copy`, `send` and `receive` beside the programs that people copy with,
//! as whole new processes in the same run.
//!
//! What is measured, and how, stands at the top of each file in `sections`. On top of what all benchmarks share
//! (`bench/common`), from the bottom: `corpus` (what is copied), `subjects` (who copies), `compete` (in turns, and right),
//! `network` (through sockets), and the sections with their tables and plots.

pub mod bench;
pub mod check;
pub mod compete;
pub mod corpus;
pub mod in_process;
pub mod network;
pub mod nginx;
pub mod sections;
pub mod subjects;
