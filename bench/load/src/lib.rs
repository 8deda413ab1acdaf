//! The benchmark of loading a file. Each measured load is a new process: this program itself as a child (`child`), or Python.
//!
//! From the bottom: `work` (what is done with a loaded file), `corpus` (the files), `child` (one load, measured from inside), `subjects`
//! (who loads), `compete` (all in turns) and `together` (several at once), `group` (a limit of memory), `sections` (questions and tables).

pub mod bench;
pub mod child;
pub mod compete;
pub mod corpus;
pub mod group;
pub mod sections;
pub mod subjects;
pub mod together;
pub mod work;
