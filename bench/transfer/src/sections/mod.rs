//! Sections of the benchmark; each answers one question.

pub mod copies;
pub mod files;
pub mod goals;
mod inside;
pub mod pipes;
pub mod sockets;

use common::bench::Section;
use common::options::Choices;
use common::units::{GIB, KIB, MIB};

use crate::bench::Own;

const FILE_SYSTEMS: [&str; 4] = ["ext4", "xfs", "btrfs", "tmpfs"];
const STATES: [&str; 4] = ["warm", "cold", "unsynced", "synced"];
/// Sizes of the files that a quick run copies.
const SIZES_QUICK_BYTES: [u64; 3] = [4 * KIB, 64 * MIB, GIB];

/// `goals` is last, because it uses results of the others.
pub const SECTIONS: [Section<Own>; 5] = [
    ("files", files::report),
    ("pipes", pipes::report),
    ("copies", copies::report),
    ("sockets", sockets::report),
    ("goals", goals::report),
];

/// Choices of the command line.
pub fn choices() -> Choices<'static> {
    Choices {
        program: "evermap-transfer-bench",
        sections: SECTIONS.map(|(name, _)| name).to_vec(),
        file_systems: &FILE_SYSTEMS,
        states: &STATES,
        sizes_quick_bytes: &SIZES_QUICK_BYTES,
        shares_percent: &[],
        full: None,
    }
}
