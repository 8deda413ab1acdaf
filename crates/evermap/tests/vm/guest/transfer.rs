//! Jobs of copies: made on a disk that is recorded, and judged after cuts of it.

use std::time::Instant;

use super::cuts::{self, Recorded};
use super::marks::Marks;
use super::{Orders, mount, write_back_every};
use crate::copies::{Judged, Promise, SOURCES, TARGETS, make_copies};
use crate::layout::{Part, image_bytes};
use crate::states::say;

/// The file system that copies go to.
pub const PARTS: [Part; 1] = [Part::whole(16 << 20, 256)];
/// Both machines have the sources' disk at the same place: its device is a part of what tells one source from another.
const SOURCES_DEVICE: &str = "/dev/vdb";

/// Copies, and writes into the same recording what is promised.
pub fn record(orders: &Orders) {
    // Not so soon that it does what a copy forgets.
    write_back_every(50);
    mount("ext4", SOURCES_DEVICE, "ro", SOURCES).unwrap();
    // Without the flushes that ext4 makes by itself for programs that rename and don't flush.
    mount("ext4", "/dev/vda", "commit=1,noauto_da_alloc", TARGETS).unwrap();
    let mut marks = Marks::open("/dev/vda", image_bytes(&PARTS));
    let started = Instant::now();
    make_copies(orders.number("states"), &mut |promise| marks.write(&promise.to_line())).unwrap();
    say(&format!("report: copies recorded in {:.1} s", started.elapsed().as_secs_f64()));
}

/// Cuts the recorded disk's power at many places and judges what is left under the names.
pub fn replay(orders: &Orders) {
    mount("ext4", SOURCES_DEVICE, "ro", SOURCES).unwrap();
    let recorded = Recorded { parts: &PARTS, log_device: "/dev/vdc", rounds: 8 };
    let mut judged = Judged::default();
    let states = cuts::replay(orders, &recorded, &mut |promise, _| {
        judged.judge(promise.and_then(Promise::of_line).unwrap_or_default())
    });
    let Judged { resumed, early_trees, absent_trees } = judged;
    say(&format!(
        "report: {states} different states found; {resumed} cuts left a part to be resumed, {absent_trees} \
         no tree, {early_trees} one that was not reported yet"
    ));
    assert!(resumed > 0 || orders.text("cut").is_some(), "no cut left anything to be resumed");
}
