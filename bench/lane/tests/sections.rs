//! Runs each section as a quick run, with the programs that are installed.

#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

use common::leftovers::{left_behind, until};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_evermap-lane-bench");

struct Bench {
    /// Working folder, empty after each run.
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

    /// Returns the output of a run that must succeed and leave nothing behind.
    fn report(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{stderr}");
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
fn the_ladder_has_every_rung_and_rate_and_judges_two_rungs() {
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
    has(&report, &["| computing programs |", "| time of 4 KiB |", "PC-RAM"]);
    for name in ["lane-hogs-24.svg", "lane-hogs-60.svg", "lane-latency-missed.svg"] {
        assert!(bench.has_drawn(name), "{name}");
    }
}

#[test]
fn cost_compares_the_loss_of_others_with_the_programs_own_work() {
    let bench = Bench::new();
    let report = bench.report(&["--subjects", "lend-map,lend-nowait", "cost"]);
    if report.contains("Skipped: stress-ng is not installed") {
        eprintln!("skipped: stress-ng is not installed");
        return;
    }
    has(&report, &["| alone |", "| lend-map |", "cost of lend-nowait at 60 a second to others"]);
}

#[test]
fn a_decoder_is_measured_with_and_without_a_lane() {
    let bench = Bench::new();
    let report = bench.report(&["decoder"]);
    if report.contains("Skipped: needs ffmpeg") {
        eprintln!("skipped: needs ffmpeg, stress-ng and EVERMAP_COMMAND");
        return;
    }
    has(&report, &["| ordinary |", "| lane |", "| lane and tier |"]);
    assert!(bench.has_drawn("lane-decoder.svg"));
    assert_eq!(bench.lines().iter().filter(|line| line["section"] == "decoder").count(), 3);
}

#[test]
fn an_unknown_section_is_refused_with_a_list_of_choices() {
    let output = Bench::new().run(&["ladders"]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && stderr.contains("ladder, cost, hogs"), "{stderr}");
}
