//! Finds remains of a run: loop devices, mounts, files and processes. Used by the benchmarks'
//! tests.

// Test code: an unexpected error ends the test.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::{Duration, Instant};

/// Returns the loop devices on files of this folder, unlinked files included.
pub fn loop_devices(folder: &Path) -> Vec<String> {
    let devices = std::fs::read_dir("/sys/block").unwrap().flatten();
    let files = devices
        .filter_map(|device| std::fs::read_to_string(device.path().join("loop/backing_file")).ok());
    files.filter(|file| file.starts_with(folder.to_str().unwrap())).collect()
}

/// Returns the loop devices, mounts and files of this folder, and processes with the folder in
/// their arguments.
pub fn left_behind(folder: &Path) -> Vec<String> {
    let mut found = loop_devices(folder);
    let name = folder.to_str().unwrap();
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    found.extend(mounts.lines().filter(|line| line.contains(name)).map(str::to_string));
    let files = std::fs::read_dir(folder).unwrap().flatten();
    found.extend(files.map(|file| file.path().display().to_string()));
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        if line.contains(name) {
            found.push(line.replace('\0', " "));
        }
    }
    found
}

/// Waits up to a minute until the condition holds.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
