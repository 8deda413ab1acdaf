//! Runs each section as a quick run, with the programs that are installed.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

use harness::testing::{Program, has};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bench-load");

#[test]
fn each_cell_has_all_subjects_and_compares_the_policy_with_the_best() {
    let program = Program::new(PROGRAM);
    let report = program.report(&["--states", "warm,sequential", "--shares", "25,100", "cells"]);
    has(
        &report,
        &[
            "### 4 MiB, warm, read, sequential",
            "### 4 MiB, warm, written, sequential",
            "| finished, ms | 25 % | 100 % |",
            "| malloc+read |",
            "| evermap mmap-populate-write |",
            "### Automatic compared with the best",
            "`automatic` is within 10 % of the best in",
        ],
    );
    let lines = program.lines();
    let of = |name: &str| lines.iter().find(|line| line["subject"] == name).unwrap();
    assert_eq!(of("malloc+read")["checksum"], of("automatic")["checksum"]);
    assert_eq!(of("malloc+read")["cached_bytes"], 4 << 20);
    assert!(of("automatic")["method"].is_string());
    assert!(program.results.path().join("load-4MiB-warm.svg").exists());
}

#[test]
fn a_cold_takeover_leaves_no_cached_and_no_duplicate_bytes() {
    let program = Program::new(PROGRAM);
    let arguments = ["--subjects", "takeover,malloc", "--states", "cold", "--shares", "100"];
    let report = program.report(&[&arguments[..], &["cells"]].concat());
    if !report.contains("| evermap takeover |") {
        return eprintln!("skipped: takeover does not work here");
    }
    let lines = program.lines();
    let of = |name: &str| {
        let found = lines.iter().find(|line| line["subject"] == name);
        found.unwrap_or_else(|| panic!("{name} in:\n{report}"))
    };
    assert_eq!(of("evermap takeover")["duplicate_bytes"], 0);
    assert!(of("malloc+read")["duplicate_bytes"].as_u64().unwrap() >= 4 << 20);
}

#[test]
fn file_systems_are_measured_or_reported_as_skipped() {
    let report = Program::new(PROGRAM).report(&["--subjects", "automatic,malloc+read", "systems"]);
    for name in ["xfs", "btrfs", "tmpfs", "squashfs zstd", "erofs plain", "erofs lz4hc"] {
        let is_there = report.contains(&format!("### {name}, 4 MiB, warm"));
        assert!(is_there || report.contains(&format!("**Skipped: {name}**")), "{name}:\n{report}");
    }
}

#[test]
fn the_studys_table_shows_todays_figures_and_its_own() {
    let report = Program::new(PROGRAM).report(&["study"]);
    has(&report, &["| 1 | read | disk |", "| 4.420 |", "| -0.461 |", "in 2005: 496 -> 317"]);
    assert!(
        report.contains("| 5 | takeover (total) |") || report.contains("**Skipped"),
        "{report}"
    );
}

#[test]
fn loaders_begin_together_and_the_memory_limit_is_removed_afterwards() {
    let program = Program::new(PROGRAM);
    let report = program.report(&["--subjects", "automatic,malloc", "loaders"]);
    has(&report, &["| 4, own files |", "| 2, same file |", "times the file"]);
    let together = program.lines().into_iter().find(|line| line["loaders"] == 4).unwrap();
    assert!(together["slowest_s"].as_f64().unwrap() > 0.0);
    for parent in ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"] {
        let Ok(entries) = std::fs::read_dir(parent) else { continue };
        let own = |name: &std::ffi::OsStr| {
            // Another run's group is named after a live process; the ended run's is
            // not.
            let name = name.to_string_lossy().into_owned();
            let number = name.strip_prefix("evermap-bench-")?.to_string();
            (!Path::new("/proc").join(number).exists()).then_some(name)
        };
        let left: Vec<String> =
            entries.flatten().filter_map(|entry| own(&entry.file_name())).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn goals_are_judged_or_reported_as_not_measured() {
    let program = Program::new(PROGRAM);
    let report = program.report(&["finish"]);
    has(
        &report,
        &[
            "malloc+read / automatic | >= 2 |",
            "cold, all written: mmap / automatic",
            "run `cells` in the same run",
        ],
    );
    assert!(program.lines().iter().any(|line| line["goal"]["at_least"] == 1.5));
}

#[test]
fn the_checksum_depends_only_on_the_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let (list, file) = (folder.path().join("list"), folder.path().join("file"));
    std::fs::write(&list, 1u32.to_ne_bytes()).unwrap();
    std::fs::write(&file, vec![0; 8192]).unwrap();
    let checksum = |subject: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(["child", "load", "--subject", subject, "--pages"]).arg(&list).arg(&file);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let taken: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        taken["checksum"].as_str().unwrap().to_string()
    };
    let before = checksum("malloc+read");
    assert_eq!(before, checksum("evermap read"));
    std::fs::write(&file, vec![1; 8192]).unwrap();
    assert_ne!(before, checksum("malloc+read"));
}

#[test]
fn an_unknown_section_is_refused_with_a_list_of_choices() {
    Program::new(PROGRAM).refuses_unknown_sections("cells, systems, study, loaders, finish");
}
