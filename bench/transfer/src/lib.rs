//! Measures transfers: every engine of `evermap copy`, `send` and `receive`, and widely used
//! copying programs, each step a new process in the same run.
//!
//! The head of each file in `sections` says what it measures and how. From the bottom, above
//! `bench/common`: `corpus` (data to copy), `subjects` (copying programs), `compete` (runs subjects
//! in turns and checks their copies), `network` (transfers through sockets), and the sections with
//! their tables and plots.

pub mod bench;
pub mod check;
pub mod compete;
pub mod corpus;
pub mod in_process;
pub mod network;
pub mod nginx;
pub mod sections;
pub mod subjects;
