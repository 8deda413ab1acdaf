//! The cold path: a page is parsed, styled, laid out and recorded, in a process of its own.

mod adapt;
mod after;
mod build;
mod css;
mod lay_out;
mod markers;
mod places;
mod process;
mod resources;
mod svg;

#[cfg(test)]
mod html_tests;
#[cfg(test)]
mod tests;

pub use process::main;
