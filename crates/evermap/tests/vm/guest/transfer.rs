//! Jobs for copies: they are made on a recorded disk and judged after power failures.

use std::time::Instant;

use super::crash_points::{self, Recorded};
use super::marks::Marks;
use super::{Orders, mount, write_back_every};
use crate::copies::{Judged, Promise, SOURCES, TARGETS, make_copies};
use crate::layout::{Part, image_bytes};
use crate::states::say;

/// The file system that copies go to.
pub const PARTS: [Part; 1] = [Part::whole(16 << 20, 256)];
/// Both machines have the sources' disk as the same device, because the device is part of a
/// source's identity.
const SOURCES_DEVICE: &str = "/dev/vdb";

/// Copies, and writes the promises into the same recording.
pub fn record(orders: &Orders) {
    // Late write-back, so that it does not hide a missing flush.
    write_back_every(50);
    mount("ext4", SOURCES_DEVICE, "ro", SOURCES).unwrap();
    // Without the flushes that ext4 adds for programs that rename without a flush.
    mount("ext4", "/dev/vda", "commit=1,noauto_da_alloc", TARGETS).unwrap();
    let mut marks = Marks::open("/dev/vda", image_bytes(&PARTS));
    let started = Instant::now();
    make_copies(orders.number("states"), &mut |promise| marks.write(&promise.to_line())).unwrap();
    say(&format!("report: copies recorded in {:.1} s", started.elapsed().as_secs_f64()));
}

/// Fails the recorded disk's power at many positions and judges the copies.
pub fn replay(orders: &Orders) {
    mount("ext4", SOURCES_DEVICE, "ro", SOURCES).unwrap();
    let recorded = Recorded { parts: &PARTS, log_device: "/dev/vdc", rounds: 8 };
    let mut judged = Judged::default();
    let states = crash_points::replay(orders, &recorded, &mut |promise, _| {
        judged.judge(promise.and_then(Promise::of_line).unwrap_or_default())
    });
    let Judged { resumed, early_trees, absent_trees } = judged;
    say(&format!(
        "report: {states} different states found; {resumed} crash points left a part to resume, {absent_trees} \
         no tree, {early_trees} one that was not reported yet"
    ));
    assert!(
        resumed > 0 || orders.text("crash_point").is_some(),
        "no power failure left anything to resume"
    );
}
