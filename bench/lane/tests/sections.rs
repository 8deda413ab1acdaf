//! The sections at work, in small, with what is here.

#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

use common::leftovers::{left_behind, until};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_evermap-lane-bench");

struct Bench {
    /// What is measured in: empty after each run.
    folder: TempDir,
    results: TempDir,
}

impl Bench {
    fn new() -> Bench {
        Bench { folder: tempfile::tempdir().unwrap(), results: tempfile::tempdir().unwrap() }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(PROGRAM);
        command.args(["--quick", "--folder"]).arg(self.folder.path());
        command.arg("--images").arg(self.results.path());
        command.arg("--json").arg(self.results.path().join("raw")).args(arguments);
        command.env("EVERMAP_BENCH_WAIT", "0");
        command.output().unwrap()
    }

    /// What a run prints that ends well, and leaves nothing.
    fn report(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{complaint}");
        until("everything is undone", || left_behind(self.folder.path()).is_empty());
        String::from_utf8(output.stdout).unwrap()
    }

    fn lines(&self) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(self.results.path().join("raw")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn has_drawn(&self, name: &str) -> bool {
        let svg = std::fs::read_to_string(self.results.path().join(name));
        svg.is_ok_and(|svg| svg.starts_with("<svg"))
    }
}

fn has(report: &str, all: &[&str]) {
    for wanted in all {
        assert!(report.contains(wanted), "{wanted} in:\n{report}");
    }
}

#[test]
fn the_ladder_has_each_rung_at_each_rate_and_judges_two_of_them() {
    let bench = Bench::new();
    let report = bench.report(&["--subjects", "ordinary-blocking,lend-map,lend-nowait", "ladder"]);
    has(&report, &["24 periods a second", "60 periods", "1000 periods", "| ordinary-blocking |"]);
    has(&report, &["lend-map at 24 a second", "lend-nowait at 1000 a second", "| goal |"]);
    for name in ["lane-missed.svg", "lane-completion-24.svg", "lane-completion-1000.svg"] {
        assert!(bench.has_drawn(name), "{name}");
    }
    let played = bench.lines().iter().filter(|line| line.get("played").is_some()).count();
    assert_eq!(played, 9, "three rungs, three rates");
}

#[test]
fn latencies_and_loads_are_swept() {
    let bench = Bench::new();
    let report = bench.report(&["--subjects", "lend-map,ordinary-map", "hogs", "latency"]);
    has(&report, &["| computing beside |", "| 4 KiB take |", "PC-RAM"]);
    for name in ["lane-hogs-24.svg", "lane-hogs-60.svg", "lane-latency-missed.svg"] {
        assert!(bench.has_drawn(name), "{name}");
    }
}

#[test]
fn what_others_lose_is_held_against_what_is_left_of_the_cores() {
    let bench = Bench::new();
    let report = bench.report(&["--subjects", "lend-map,lend-nowait", "cost"]);
    if report.contains("Skipped: there is no stress-ng") {
        eprintln!("skipped: there is no stress-ng");
        return;
    }
    has(&report, &["| alone |", "| lend-map |", "cost of lend-nowait at 60 a second to others"]);
}

#[test]
fn a_decoder_is_watched_in_a_lane_and_out_of_one() {
    let bench = Bench::new();
    let report = bench.report(&["decoder"]);
    if report.contains("Skipped: it takes ffmpeg") {
        eprintln!("skipped: there is no ffmpeg, no stress-ng, or no EVERMAP_COMMAND");
        return;
    }
    has(&report, &["| ordinary |", "| lane |", "| lane and tier |"]);
    assert!(bench.has_drawn("lane-decoder.svg"));
    assert_eq!(bench.lines().iter().filter(|line| line["section"] == "decoder").count(), 3);
}

#[test]
fn what_is_not_known_is_refused_with_what_there_is() {
    let output = Bench::new().run(&["ladders"]);
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && complaint.contains("ladder, cost, hogs"), "{complaint}");
}
