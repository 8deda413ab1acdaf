//! Sections of the benchmark; each answers one question.

pub mod cells;
pub mod finish;
pub mod loaders;
pub mod study;
pub mod systems;
mod tables;

/// Shares of a file's pages, in percent; the choices of `--shares`.
const SHARES_PERCENT: [u8; 4] = [10, 25, 50, 100];
