//! Every engine, on every kind of end that is to be had here: what arrives is what was due, and nothing else changes.
#![allow(clippy::unwrap_used)]

mod cancelled;
mod common;
mod cut_short;
mod file_systems;
mod files;
mod full;
mod replaced;
mod streams;
mod threads;
