//! Sections of the benchmark; each answers one question.

pub mod copies;
pub mod files;
pub mod goals;
mod inside;
pub mod pipes;
pub mod sockets;
