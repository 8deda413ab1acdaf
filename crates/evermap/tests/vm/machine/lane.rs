//! Lanes on machines that the host is not: other hierarchies of control groups, one core, cores that are switched off, persistent memory; and files
//! that move to a tier while the power goes.

use std::time::Instant;

use super::power_cuts::PowerCuts;
use super::{Parts, memory_with_a_file_system};
use crate::guest::LANE_PARTS;

/// One that is held, one that another lane has, and one for everybody else.
const CORES: u32 = 3;

/// Boots a machine for some of the tests of `evermap-lane`.
fn lanes(cores: u32, memory: &[String], tests: &str, order: (&str, &str)) {
    let Some(parts) = Parts::find() else { return };
    let started = Instant::now();
    let orders =
        [("job", "lane".to_string()), ("tests", tests.into()), (order.0, order.1.to_string())];
    parts.boot_with(cores, memory, &[], &orders).finish();
    println!("{tests} ({} {}): {:.0} s", order.0, order.1, started.elapsed().as_secs_f64());
}

#[test]
#[ignore = "boots a machine: make test-vm"]
fn lanes_hold_cores_by_partitions_of_version_2_and_leave_all_as_it_was() {
    lanes(CORES, &[], "held::", ("groups", "unified"));
}

#[test]
#[ignore = "boots a machine: make test-vm"]
fn lanes_hold_cores_by_cpusets_of_version_1_beside_version_2_and_leave_all_as_it_was() {
    lanes(CORES, &[], "held::", ("groups", "hybrid"));
}

#[test]
#[ignore = "boots a machine: make test-vm"]
fn lanes_leave_cores_that_are_switched_off() {
    lanes(CORES, &[], "offline::", ("groups", "unified"));
}

#[test]
#[ignore = "boots a machine: make test-vm"]
fn lanes_do_what_they_can_with_one_core() {
    lanes(1, &[], "one_core::", ("groups", "unified"));
}

#[test]
#[ignore = "boots a machine: make test-vm"]
fn lanes_know_persistent_memory_and_read_from_it() {
    let directory = tempfile::tempdir().unwrap();
    let memory = memory_with_a_file_system(directory.path());
    lanes(2, &memory, "direct::", ("direct", "1"));
}

#[test]
#[ignore = "boots a machine: make test-vm"]
fn a_power_cut_between_any_two_flushes_loses_no_file_that_moves_to_a_tier_or_back() {
    let Some(parts) = Parts::find() else { return };
    let cuts = PowerCuts {
        record: ("record-moves", Vec::new()),
        replay: "replay-moves",
        parts: &LANE_PARTS,
        further_disk: None,
        seconds: 90,
        only: "lane::a_power_cut",
    };
    cuts.run(&parts);
}
