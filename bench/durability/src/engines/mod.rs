//! Engines: Evermap and its peers, each with the same pages.

pub mod evermap;
pub mod lmdb;
pub mod pmdk;
pub mod redb;
pub mod sqlite;
