//! Benchmark of loading a file. Each measured load is a new process: this program itself as a child
//! (`child`), or Python.
//!
//! From the bottom: `work` (touches a loaded file), `corpus` (the files), `child` (one load,
//! measured from inside), `subjects` (the ways to load), `compete` (subjects in turns) and
//! `together` (several loads at once), `group` (a memory limit), `sections` (questions and tables).

pub mod bench;
pub mod child;
pub mod compete;
pub mod corpus;
pub mod group;
pub mod sections;
pub mod subjects;
pub mod together;
pub mod work;
