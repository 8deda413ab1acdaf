//! The cold path: a page is parsed, styled, laid out and recorded, in a process of its own.

mod build;
mod lay_out;
mod places;
mod process;
mod resources;
mod svg;

#[cfg(test)]
mod tests;

pub use process::main;
