//! Copies of files and trees, and power cuts around the moment when they get their names.

use std::path::Path;

use super::power_cuts::PowerCuts;
use super::{Parts, make_file, make_file_system, number};
use crate::copies::make_sources;
use crate::guest::COPIES_PARTS;

/// Room for the sources; what is not used is a hole.
const SOURCES_BYTES: u64 = 256 << 20;

fn states() -> u64 {
    number("EVERMAP_VM_COPIES", 42)
}

fn make_sources_disk(path: &Path) {
    let directory = tempfile::tempdir().unwrap();
    make_sources(directory.path(), states());
    make_file(path, SOURCES_BYTES);
    let filled = directory.path().display().to_string();
    make_file_system("mke2fs", &["-q", "-t", "ext4", "-b", "4096", "-d", &filled], path, &[]);
}

#[test]
#[ignore = "boots a machine: make test-vm"]
fn a_power_cut_between_any_two_flushes_leaves_whole_copies_under_their_names_and_parts_to_go_on_with()
 {
    let Some(parts) = Parts::find() else { return };
    let cuts = PowerCuts {
        record: ("record-copies", vec![("states", states().to_string())]),
        replay: "replay-copies",
        parts: &COPIES_PARTS,
        further_disk: Some(make_sources_disk),
        seconds: 90,
        only: "transfer",
    };
    cuts.run(&parts);
}
