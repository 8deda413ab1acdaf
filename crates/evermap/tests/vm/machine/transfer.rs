//! Copies of files and trees, with power failures around the moment when they get their names.

use std::path::Path;

use super::power_failures::PowerFailures;
use super::{Parts, make_file, make_file_system, number};
use crate::copies::make_sources;
use crate::guest::COPIES_PARTS;

/// Maximum size of the sources; the unused rest is a hole.
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
fn a_power_failure_between_any_two_flushes_leaves_complete_copies_and_resumable_parts() {
    let Some(parts) = Parts::find() else { return };
    let failures = PowerFailures {
        record: ("record-copies", vec![("states", states().to_string())]),
        replay: "replay-copies",
        parts: &COPIES_PARTS,
        further_disk: Some(make_sources_disk),
        seconds: 90,
        only: "transfer",
    };
    failures.run(&parts);
}
