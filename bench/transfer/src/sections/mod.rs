//! The sections: each answers one question.

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
/// Of the ten files, those that a quick run takes: by their sizes.
const SIZES_QUICK_BYTES: [u64; 3] = [4 * KIB, 64 * MIB, GIB];

/// `goals` comes last: it is about what others measured, too.
pub const SECTIONS: [Section<Own>; 5] = [
    ("files", files::report),
    ("pipes", pipes::report),
    ("copies", copies::report),
    ("sockets", sockets::report),
    ("goals", goals::report),
];

/// What there is to choose from.
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
