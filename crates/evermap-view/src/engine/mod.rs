//! The cold path: parses, styles, lays out and records a page in a separate process.

mod adapt;
mod after;
mod build;
mod css;
mod lay_out;
mod markers;
mod node;
mod places;
mod process;
mod resources;
mod svg;

#[cfg(test)]
mod html_tests;
#[cfg(test)]
mod tests;

pub use process::main;
