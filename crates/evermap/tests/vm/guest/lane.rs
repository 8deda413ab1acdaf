//! Jobs for lanes: the tests of `evermap-lane` that need this machine, and files that move to a
//! tier on a recorded disk.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use super::crash_points::{self, Recorded};
use super::marks::Marks;
use super::{Orders, mount, write_back_every};
use crate::layout::{Part, image_bytes};
use crate::states::say;

/// The tests of `evermap-lane`.
const LANE: &str = "/bin/lane";
const MIB: u64 = 1 << 20;
/// The file systems of the files and of the tier. They share one disk, so that one recording orders
/// the writes to both.
pub const PARTS: [Part; 2] = [
    Part { offset: MIB, bytes: 12 * MIB, inodes: 128, place: "/mnt/files" },
    Part { offset: 13 * MIB, bytes: 12 * MIB, inodes: 128, place: "/mnt/tier" },
];

/// Runs the tests whose names contain the requested words. None of them may be skipped.
pub fn tests(orders: &Orders) {
    match orders.text("groups") {
        Some("unified") => mount("cgroup2", "none", "rw", "/sys/fs/cgroup").unwrap(),
        Some("hybrid") => {
            if let Err(why) = mount_hybrid() {
                return say(&format!("SKIPPED: this kernel has no cpusets of version 1: {why}"));
            }
        }
        _ => {}
    }
    if orders.number("direct") == 1 {
        mount("ext4", "/dev/pmem0", "dax", "/mnt").unwrap();
    }
    let mut child = Command::new(LANE)
        .args(["--ignored", "--nocapture", "--test-threads=1"])
        .args(orders.text("tests").unwrap().split(','))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut passed = 0;
    for line in lines {
        say(&format!("lane: {line}"));
        passed += u32::from(line.ends_with("... ok") || line == "ok");
    }
    assert!(child.wait().unwrap().success(), "a promise of lanes is broken");
    assert!(passed > 0, "no test was run");
}

/// Mounts cpusets as a version 1 hierarchy, and the other controllers as version 2.
fn mount_hybrid() -> Result<(), String> {
    mount("tmpfs", "none", "rw", "/sys/fs/cgroup")?;
    for name in ["cpuset", "unified"] {
        std::fs::create_dir(Path::new("/sys/fs/cgroup").join(name)).map_err(|e| e.to_string())?;
    }
    mount("cgroup", "none", "cpuset", "/sys/fs/cgroup/cpuset")?;
    mount("cgroup2", "none", "rw", "/sys/fs/cgroup/unified")
}

/// A program that exchanges lines with this one.
struct Partner {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Partner {
    fn start(job: &str) -> Partner {
        let mut child = Command::new(LANE)
            .args(["--exact", job, "--ignored", "--nocapture", "--test-threads=1"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Partner { child, input, lines }
    }

    fn say(&mut self, line: &str) -> Result<(), String> {
        writeln!(self.input, "{line}").map_err(|e| format!("the program of lanes: {e}"))
    }

    /// Returns the next line that begins with one of these words, or `None` at the end of the
    /// output.
    fn hear(&mut self, words: &[&str]) -> Option<String> {
        let mut lines = self.lines.by_ref().map_while(Result::ok);
        lines.find(|line| words.iter().any(|word| line.starts_with(word)))
    }
}

/// Moves files to the tier and back, and writes the promises into the recording of both.
pub fn record() {
    // Late write-back, so that it does not hide a missing flush.
    write_back_every(50);
    for (part, device) in PARTS.iter().zip(["/dev/vda1", "/dev/vda2"]) {
        std::fs::create_dir_all(part.place).unwrap();
        // Without the flushes that ext4 adds for programs that rename without a flush.
        mount("ext4", device, "commit=1,noauto_da_alloc", part.place).unwrap();
    }
    let mut marks = Marks::open("/dev/vda", image_bytes(&PARTS));
    let (started, mut promises) = (Instant::now(), 0);
    let mut partner = Partner::start("moved::records");
    while let Some(promise) = partner.hear(&["promise "]) {
        marks.write(&promise);
        partner.say("written").unwrap();
        promises += 1;
    }
    assert!(partner.child.wait().unwrap().success(), "files did not move");
    let seconds = started.elapsed().as_secs_f64();
    say(&format!("report: {promises} promises of files that move, recorded in {seconds:.1} s"));
}

/// Fails the recorded disk's power at many positions and judges the files.
pub fn replay(orders: &Orders) {
    let recorded = Recorded { parts: &PARTS, log_device: "/dev/vdb", rounds: 8 };
    let mut partner = Partner::start("moved::judges");
    let states = crash_points::replay(orders, &recorded, &mut |promise, _| {
        partner.say(promise.unwrap_or("nothing"))?;
        let said = partner.hear(&["found ", "violation: "]);
        let said = said.ok_or("the program that judges has ended")?;
        match said.split_once(' ') {
            Some(("found", number)) => number.parse().map_err(|_| said.clone()),
            _ => Err(said),
        }
    });
    say(&format!("report: {states} different states found"));
    // Its input ends.
    let Partner { mut child, input, .. } = partner;
    drop(input);
    assert!(child.wait().unwrap().success());
}
