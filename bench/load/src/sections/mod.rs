//! Sections of the benchmark; each answers one question.

pub mod cells;
pub mod finish;
pub mod loaders;
pub mod study;
pub mod systems;
mod tables;

use common::bench::Section;
use common::options::Choices;
use common::units::MIB;

use crate::bench::Own;

const FILE_SYSTEMS: [&str; 7] =
    ["ext4", "xfs", "btrfs", "squashfs", "erofs", "erofs-lz4hc", "tmpfs"];
const STATES: [&str; 6] = ["cold", "warm", "read", "written", "sequential", "random"];
const SHARES_PERCENT: [u8; 4] = [10, 25, 50, 100];
const SIZES_QUICK_BYTES: [u64; 1] = [4 * MIB];

/// `finish` is last, because its goals use results of the others.
pub const SECTIONS: [Section<Own>; 5] = [
    ("cells", cells::report),
    ("systems", systems::report),
    ("study", study::report),
    ("loaders", loaders::report),
    ("finish", finish::report),
];

/// Choices of the command line.
pub fn choices() -> Choices<'static> {
    Choices {
        program: "evermap-load-bench",
        sections: SECTIONS.map(|(name, _)| name).to_vec(),
        file_systems: &FILE_SYSTEMS,
        states: &STATES,
        sizes_quick_bytes: &SIZES_QUICK_BYTES,
        shares_percent: &SHARES_PERCENT,
        full: Some("`systems` with files of 1 GiB, too"),
    }
}
