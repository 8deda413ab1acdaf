//! Lanes on machines unlike the host: other cgroup hierarchies, one core, offline cores, persistent
//! memory. Also files that move to a tier during power failures.

use std::time::Instant;

use super::power_failures::PowerFailures;
use super::{Parts, memory_with_a_file_system};
use crate::guest::LANE_PARTS;

/// One core that is held, one of another lane, and one for all other work.
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
fn lanes_hold_cores_with_cgroup_v2_partitions_and_restore_everything() {
    lanes(CORES, &[], "held::", ("groups", "unified"));
}

#[test]
#[ignore = "boots a machine: make test-vm"]
fn lanes_hold_cores_with_cgroup_v1_cpusets_and_restore_everything() {
    lanes(CORES, &[], "held::", ("groups", "hybrid"));
}

#[test]
#[ignore = "boots a machine: make test-vm"]
fn lanes_do_not_use_offline_cores() {
    lanes(CORES, &[], "offline::", ("groups", "unified"));
}

#[test]
#[ignore = "boots a machine: make test-vm"]
fn lanes_work_on_a_machine_with_one_core() {
    lanes(1, &[], "one_core::", ("groups", "unified"));
}

#[test]
#[ignore = "boots a machine: make test-vm"]
fn lanes_detect_persistent_memory_and_read_from_it() {
    let directory = tempfile::tempdir().unwrap();
    let memory = memory_with_a_file_system(directory.path());
    lanes(2, &memory, "direct::", ("direct", "1"));
}

#[test]
#[ignore = "boots a machine: make test-vm"]
fn a_power_failure_between_any_two_flushes_loses_no_file_that_moves_to_a_tier_or_back() {
    let Some(parts) = Parts::find() else { return };
    let failures = PowerFailures {
        record: ("record-moves", Vec::new()),
        replay: "replay-moves",
        parts: &LANE_PARTS,
        further_disk: None,
        seconds: 90,
        only: "lane::a_power_failure",
    };
    failures.run(&parts);
}
