//! Sending and receiving over sockets of this machine.
#![allow(clippy::unwrap_used)]

mod broken;
mod common;
mod files;
mod fuzz;
mod hostile;
mod listener;
mod processes;
mod raw;
mod space;
mod wake_threshold;
mod wire;
