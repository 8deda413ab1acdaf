//! The sections at work, on the example pages, with a command that invents its figures.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

const FAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake-evermap");

struct Bench {
    folder: TempDir,
}

impl Bench {
    /// With a copy of the fake command that has these faults.
    fn new(faults: &[&str]) -> Bench {
        let folder = tempfile::tempdir().unwrap();
        std::fs::copy(FAKE, folder.path().join("evermap")).unwrap();
        for fault in faults {
            std::fs::write(folder.path().join(fault), "").unwrap();
        }
        Bench { folder }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_evermap-view-bench"));
        command.args(["--rounds", "1", "--images"]).arg(self.folder.path()).args(arguments);
        command.env("EVERMAP_COMMAND", self.folder.path().join("evermap"));
        command.env("EVERMAP_BENCH_WAIT", "0").env_remove("EVERMAP_CORPUS");
        command.output().unwrap()
    }

    fn report(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{complaint}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn path(&self) -> &Path {
        self.folder.path()
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
fn a_warm_start_that_is_not_warm_is_an_error_with_its_reason() {
    let output = Bench::new(&["always-cold"]).run(&["warm-cold"]);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(complaint.contains("is cold and should be warm: invented"), "{complaint}");
}

#[test]
fn pictures_that_differ_are_an_error_that_names_the_pages() {
    let report = Bench::new(&[]).report(&["pixels"]);
    assert!(report.contains("3 of 3 identical"), "{report}");
    let output = Bench::new(&["other-pixels"]).run(&["pixels"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("article"));
    assert!(String::from_utf8_lossy(&output.stdout).contains("**different** from byte"));
}

#[test]
fn media_are_measured_or_skipped_visibly_and_drawn() {
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
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains("evermap-view-bench"), "{mounts}");
}

#[test]
fn without_the_command_its_sections_are_skipped_visibly() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_evermap-view-bench"));
    command.args(["warm-cold", "size"]).env("EVERMAP_COMMAND", "none");
    let output = command.env("EVERMAP_BENCH_WAIT", "0").output().unwrap();
    let report = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    assert_eq!(report.matches("**Skipped**").count(), 2, "{report}");
}

#[test]
fn an_unknown_section_is_refused_with_those_there_are() {
    let output = Bench::new(&[]).run(&["warm"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("warm-cold, layers, peers"));
}
