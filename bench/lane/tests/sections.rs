//! Runs each section as a quick run, with the programs that are installed.

#![allow(clippy::unwrap_used)]

use harness::testing::{Program, has};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bench-lane");

#[test]
fn the_ladder_has_every_rung_and_rate_and_judges_two_rungs() {
    let program = Program::new(PROGRAM);
    let report =
        program.report(&["--subjects", "ordinary-blocking,lend-map,lend-nowait", "ladder"]);
    has(&report, &["24 periods a second", "60 periods", "1000 periods", "| ordinary-blocking |"]);
    has(&report, &["lend-map at 24 a second", "lend-nowait at 1000 a second", "| goal |"]);
    for name in ["lane-missed.svg", "lane-completion-24.svg", "lane-completion-1000.svg"] {
        program.picture(name);
    }
    let played = program.lines().iter().filter(|line| line.get("played").is_some()).count();
    assert_eq!(played, 9, "three rungs, three rates");
}

#[test]
fn latencies_and_loads_are_swept() {
    let program = Program::new(PROGRAM);
    let report = program.report(&["--subjects", "lend-map,ordinary-map", "hogs", "latency"]);
    has(&report, &["| computing programs |", "| time of 4 KiB |", "PC-RAM"]);
    for name in ["lane-hogs-24.svg", "lane-hogs-60.svg", "lane-latency-missed.svg"] {
        program.picture(name);
    }
}

#[test]
fn cost_compares_the_loss_of_others_with_the_programs_own_work() {
    let program = Program::new(PROGRAM);
    let report = program.report(&["--subjects", "lend-map,lend-nowait", "cost"]);
    if report.contains("Skipped: stress-ng is not installed") {
        eprintln!("skipped: stress-ng is not installed");
        return;
    }
    has(&report, &["| alone |", "| lend-map |", "cost of lend-nowait at 60 a second to others"]);
}

#[test]
fn a_decoder_is_measured_with_and_without_a_lane() {
    let program = Program::new(PROGRAM);
    let report = program.report(&["decoder"]);
    if report.contains("Skipped: needs ffmpeg") {
        eprintln!("skipped: needs ffmpeg, stress-ng and EVERMAP_COMMAND");
        return;
    }
    has(&report, &["| ordinary |", "| lane |", "| lane and tier |"]);
    program.picture("lane-decoder.svg");
    assert_eq!(program.lines().iter().filter(|line| line["section"] == "decoder").count(), 3);
}

#[test]
fn an_unknown_section_is_refused_with_a_list_of_choices() {
    Program::new(PROGRAM).refuses_unknown_sections("ladder, cost, hogs");
}
