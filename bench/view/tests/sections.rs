//! Runs the sections on the example pages, with a stand-in for the command that computes its
//! figures.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

const FAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake-evermap");

struct Bench {
    folder: TempDir,
}

impl Bench {
    /// Creates a folder with a copy of the stand-in that has these faults.
    fn new(faults: &[&str]) -> Bench {
        let folder = tempfile::tempdir().unwrap();
        // `cp` copies it: a program that this process has open for writing cannot be run, and
        // children of other tests may inherit the open file.
        let mut copy = Command::new("cp");
        let copied = copy.arg(FAKE).arg(folder.path().join("evermap")).status().unwrap();
        assert!(copied.success());
        for fault in faults {
            std::fs::write(folder.path().join(fault), "").unwrap();
        }
        Bench { folder }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_evermap-view-bench"));
        command.args(["--rounds", "1", "--images"]).arg(self.folder.path()).args(arguments);
        command.env("EVERMAP_COMMAND", self.folder.path().join("evermap"));
        command.env("EVERMAP_BENCH_WAIT", "0").env_remove("EVERMAP_CORPUS");
        command.env("TMPDIR", self.folder.path());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn report(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the loop devices on files of the folder.
    fn loop_devices(&self) -> Vec<String> {
        let devices = std::fs::read_dir("/sys/block").unwrap().flatten();
        let files = devices.filter_map(|device| {
            std::fs::read_to_string(device.path().join("loop/backing_file")).ok()
        });
        files.filter(|file| file.starts_with(self.path().to_str().unwrap())).collect()
    }

    /// Returns the loop devices, and the processes with the folder in their arguments.
    fn left_behind(&self) -> Vec<String> {
        let mut found = self.loop_devices();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let line = std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
            if line.contains(self.path().to_str().unwrap()) {
                found.push(line.replace('\0', " "));
            }
        }
        found
    }

    /// Waits for the slow disk, sends a signal, and waits for the cleanup. Returns false without a
    /// slow disk.
    fn interrupt(&self, signal: &str) -> bool {
        let mut command = self.command(&["--rounds", "1000", "--media", "slow", "media"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let (start, limit) = (Instant::now(), Duration::from_secs(60));
        while self.loop_devices().is_empty() && start.elapsed() < limit {
            if child.try_wait().unwrap().is_some() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let pid = child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        assert!(!child.wait().unwrap().success());
        let start = Instant::now();
        while !self.left_behind().is_empty() && start.elapsed() < limit {
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }
}

#[test]
fn warm_and_cold_are_compared_page_by_page_and_in_one_figure() {
    let report = Bench::new(&[]).report(&["warm-cold", "layers", "size"]);
    for wanted in
        ["| article |", "| outline |", "- cold / warm: geometric mean", "- abc: geometric mean"]
    {
        assert!(report.contains(wanted), "{wanted} in:\n{report}");
    }
    assert!(report.contains("tree bytes a command"), "{report}");
}

#[test]
fn a_warm_start_that_is_cold_is_an_error_with_the_reason() {
    let output = Bench::new(&["always-cold"]).run(&["warm-cold"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(stderr.contains("is cold and should be warm: invented"), "{stderr}");
}

#[test]
fn different_pictures_are_an_error_that_names_the_pages() {
    let report = Bench::new(&[]).report(&["pixels"]);
    assert!(report.contains("3 of 3 identical"), "{report}");
    let output = Bench::new(&["other-pixels"]).run(&["pixels"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("article"));
    assert!(String::from_utf8_lossy(&output.stdout).contains("**different** from byte"));
}

#[test]
fn media_are_measured_and_drawn_or_reported_as_skipped() {
    let bench = Bench::new(&[]);
    let report = bench.report(&["media"]);
    for medium in ["memory", "disk, in the page cache", "disk, cold", "slow disk"] {
        let measured = report.contains(&format!("### {medium}"));
        assert!(
            measured || report.contains(&format!("**Skipped: {medium}**")),
            "{medium}:\n{report}"
        );
    }
    for figure in ["figure-10.svg", "figure-11.svg"] {
        let svg = std::fs::read_to_string(bench.path().join(figure)).unwrap();
        let document = roxmltree::Document::parse(&svg).unwrap();
        assert!(document.descendants().filter(|node| node.has_tag_name("rect")).count() > 10);
    }
    let table = std::fs::read_to_string(bench.path().join("viewer-media.csv")).unwrap();
    assert!(table.lines().count() > 3 * 2, "{table}");
    assert_eq!(bench.left_behind(), Vec::<String>::new());
}

#[test]
fn a_termination_signal_undoes_everything() {
    let bench = Bench::new(&[]);
    if !bench.interrupt("-TERM") {
        return eprintln!("skipped: no slow disk here");
    }
    assert_eq!(bench.left_behind(), Vec::<String>::new());
    let entries = std::fs::read_dir(bench.path()).unwrap().flatten();
    let folders = entries.filter(|entry| entry.path().is_dir()).count();
    assert_eq!(folders, 0);
}

#[test]
fn a_kill_leaves_no_mount_no_device_and_no_process() {
    let bench = Bench::new(&[]);
    if !bench.interrupt("-KILL") {
        return eprintln!("skipped: no slow disk here");
    }
    assert_eq!(bench.left_behind(), Vec::<String>::new());
}

#[test]
fn without_the_command_its_sections_are_reported_as_skipped() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_evermap-view-bench"));
    command.args(["warm-cold", "size"]).env("EVERMAP_COMMAND", "none");
    let output = command.env("EVERMAP_BENCH_WAIT", "0").output().unwrap();
    let report = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    assert_eq!(report.matches("**Skipped**").count(), 2, "{report}");
}

#[test]
fn an_unknown_section_is_refused_with_a_list_of_choices() {
    let output = Bench::new(&[]).run(&["warm"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("warm-cold, layers, peers"));
}
