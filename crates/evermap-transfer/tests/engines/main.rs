//! Runs every engine on every available kind of end. Exactly the requested bytes must arrive.
#![allow(clippy::unwrap_used)]

mod cancelled;
mod common;
mod file_systems;
mod files;
mod full;
mod replaced;
mod streams;
mod threads;
mod truncated;
