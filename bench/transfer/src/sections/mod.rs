//! The sections: each answers one question.

pub mod copies;
pub mod files;
pub mod goals;
mod inside;
pub mod pipes;
pub mod sockets;

use common::Outcome;

use crate::bench::Bench;

pub type Section = (&'static str, fn(&mut Bench) -> Outcome);

/// `goals` comes last: it is about what others measured, too.
pub const SECTIONS: [Section; 5] = [
    ("files", files::report),
    ("pipes", pipes::report),
    ("copies", copies::report),
    ("sockets", sockets::report),
    ("goals", goals::report),
];
