//! Runs the sections on the example pages, with a stand-in for the command that computes its
//! figures.

#![allow(clippy::unwrap_used)]

use std::process::Command;

use harness::testing::{Program, has};

const FAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake-evermap");

/// Returns the program with a copy of the stand-in that has these faults.
fn program(faults: &[&str]) -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_bench-view"));
    let command = program.results.path().join("evermap");
    // `cp` copies it: a program that this process has open for writing cannot be run, and children
    // of other tests may inherit the open file.
    assert!(Command::new("cp").arg(FAKE).arg(&command).status().unwrap().success());
    for fault in faults {
        std::fs::write(program.results.path().join(fault), "").unwrap();
    }
    program
}

/// Returns a run of some sections with the stand-in.
fn command(program: &Program, sections: &[&str]) -> Command {
    let command = program.results.path().join("evermap");
    program.command(&[&["--evermap", command.to_str().unwrap()], sections].concat())
}

fn report(program: &Program, sections: &[&str]) -> String {
    program.report_of(&mut command(program, sections))
}

#[test]
fn warm_and_cold_are_compared_page_by_page_and_in_one_figure() {
    let report = report(&program(&[]), &["warm-cold", "layers", "size"]);
    has(&report, &["| article |", "| outline |", "- cold / warm: geometric mean"]);
    has(&report, &["- abc: geometric mean", "tree bytes a command"]);
}

#[test]
fn a_warm_start_that_is_cold_is_an_error_with_the_reason() {
    let program = program(&["always-cold"]);
    let stderr = program.failure(&mut command(&program, &["warm-cold"]));
    assert!(stderr.contains("is cold and should be warm: invented"), "{stderr}");
}

#[test]
fn different_pictures_are_an_error_that_names_the_pages() {
    has(&report(&program(&[]), &["pixels"]), &["3 of 3 identical"]);
    let program = program(&["other-pixels"]);
    let output = command(&program, &["pixels"]).output().unwrap();
    assert!(!output.status.success());
    has(&String::from_utf8_lossy(&output.stderr), &["article"]);
    has(&String::from_utf8_lossy(&output.stdout), &["**different** from byte"]);
}

#[test]
fn media_are_measured_and_drawn_or_reported_as_skipped() {
    let program = program(&[]);
    let report = report(&program, &["media"]);
    for medium in ["memory", "disk, in the page cache", "disk, cold", "slow disk"] {
        let measured = report.contains(&format!("### {medium}"));
        assert!(
            measured || report.contains(&format!("**Skipped: {medium}**")),
            "{medium}:\n{report}"
        );
    }
    for figure in ["figure-10.svg", "figure-11.svg"] {
        let svg = program.picture(figure);
        let document = roxmltree::Document::parse(&svg).unwrap();
        assert!(document.descendants().filter(|node| node.has_tag_name("rect")).count() > 10);
    }
    let table = std::fs::read_to_string(program.results.path().join("viewer-media.csv")).unwrap();
    assert!(table.lines().count() > 3 * 2, "{table}");
}

/// Interrupts a long run on the slow disk. Returns false on a machine without a slow disk.
fn interrupt(signal: &str) -> bool {
    let program = program(&[]);
    let evermap = program.results.path().join("evermap");
    let evermap = evermap.to_str().unwrap();
    let long = ["--evermap", evermap, "--rounds", "1000", "--media", "slow", "media"];
    program.interrupt(&long, signal)
}

#[test]
fn a_termination_signal_undoes_everything() {
    if !interrupt("-TERM") {
        eprintln!("skipped: no slow disk here");
    }
}

#[test]
fn a_kill_leaves_no_mount_no_device_and_no_process() {
    if !interrupt("-KILL") {
        eprintln!("skipped: no slow disk here");
    }
}

#[test]
fn without_the_command_its_sections_are_reported_as_skipped() {
    let program = program(&[]);
    let report = program.report(&["--evermap", "none", "warm-cold", "size"]);
    assert_eq!(report.matches("**Skipped**").count(), 2, "{report}");
}

#[test]
fn an_unknown_section_is_refused_with_a_list_of_choices() {
    program(&[]).refuses_unknown_sections("warm-cold, layers, peers");
}
