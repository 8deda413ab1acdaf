//! Runs each section as a quick run, with the peers alone and with a stand-in for the command.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

use harness::guard::Guard;
use harness::testing::{self, has};

const FAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake-evermap");
const PROGRAM: &str = env!("CARGO_BIN_EXE_bench-transfer");

/// Runs the program with the peers alone.
struct Program(testing::Program);

impl Program {
    fn new() -> Program {
        Program(testing::Program::new(PROGRAM))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.0.command(arguments);
        command.env_remove("EVERMAP_COMMAND").env_remove("EVERMAP_BENCH_MEMORY");
        command.env("FAKE_PROGRAMS", Path::new(PROGRAM).parent().unwrap());
        command
    }

    fn report(&self, arguments: &[&str]) -> String {
        self.0.report_of(&mut self.command(arguments))
    }

    /// Returns a plot after checking that it is well-formed and has everything inside.
    fn plot(&self, name: &str) -> String {
        let svg = self.0.picture(name);
        let document = roxmltree::Document::parse(&svg).unwrap();
        let view = document.root_element().attribute("viewBox").unwrap();
        let size: Vec<f64> = view.split_whitespace().map(|part| part.parse().unwrap()).collect();
        for node in document.descendants() {
            for (name, most) in [("x", size[2]), ("y", size[3])] {
                let Some(value) = node.attribute(name) else { continue };
                let value: f64 = value.parse().unwrap();
                assert!((0.0..=most).contains(&value), "{name}={value}");
            }
        }
        svg
    }
}

/// Arguments for one cell in memory, with peers that are always installed.
const SMALL: [&str; 9] = [
    "--sizes",
    "4KiB",
    "--file-systems",
    "tmpfs",
    "--states",
    "warm",
    "--subjects",
    "cat,dd,std::fs",
    "files",
];

#[test]
fn peers_alone_are_measured_in_turns_and_every_figure_is_written() {
    let program = Program::new();
    let report = program.report(&SMALL);
    has(
        &report,
        &[
            "### tmpfs, warm, unsynced",
            "| wall, ms | text 4 KiB |",
            "| cat |",
            "| dd bs=1M |",
            "| std::fs::copy |",
        ],
    );
    assert!(report.contains("Evermap itself is not measured"), "{report}");
    let lines = program.0.lines();
    let cat: Vec<_> = lines.iter().filter(|line| line["subject"] == "cat").collect();
    assert_eq!(cat.len(), 1);
    assert!(cat[0]["wall_ns"].as_u64().unwrap() > 0 && cat[0]["bytes"] == 4096, "{cat:?}");
    assert!(program.plot("transfer-files-tmpfs-warm-unsynced.svg").contains("std::fs::copy"));
}

#[test]
fn evermap_is_compared_with_its_fastest_peer_and_names_its_engine() {
    let program = Program::new();
    let mut arguments = SMALL.to_vec();
    arguments[7] = "cat,evermap,splice";
    arguments.extend(["--evermap", FAKE]);
    let report = program.report(&arguments);
    let judged = |line: &&str| line.starts_with("| text 4 KiB | ") && line.contains("cat | ");
    let line = report.lines().find(judged).unwrap();
    assert!(line.ends_with("| read-write |"), "{line}");
    assert!(report.contains("| uring-splice |") && !report.contains("in fact by"), "{report}");
}

#[test]
fn a_wrong_copy_ends_the_run_and_names_its_subject() {
    let program = Program::new();
    let mut arguments = SMALL.to_vec();
    arguments[7] = "evermap";
    arguments.extend(["--evermap", FAKE]);
    let stderr = program.0.failure(program.command(&arguments).env("FAKE_WRONG", "1"));
    assert!(stderr.contains("**wrong copy** by evermap copy"), "{stderr}");
}

#[test]
fn goals_are_judged_or_reported_as_not_measured() {
    let program = Program::new();
    let report = program.report(&["--evermap", FAKE, "--file-systems", "tmpfs", "goals"]);
    has(
        &report,
        &[
            "cp / evermap | >= 1.15",
            "to a socket, woken for each segment: sender's CPU",
            "to a socket, woken each 128 KiB: rate",
            "KiB allocated | <= 4 |",
            "cp -a / evermap | >= 1.5",
        ],
    );
    assert!(report.contains("not measured: run `files` in the same run"), "{report}");
    assert!(program.0.lines().iter().any(|line| line["goal"]["at_least"] == 1.15));
}

#[test]
fn sockets_carry_every_byte_and_both_ends_are_measured() {
    let program = Program::new();
    let report = program.report(&["--evermap", FAKE, "sockets"]);
    has(
        &report,
        &[
            "### TCP, random 1 MiB, discarded",
            "### UNIX",
            "`evermap receive` to a file",
            "| send: splice |",
        ],
    );
    let lines = program.0.lines();
    let sent = lines.iter().find(|line| line["subject"] == "read + send 64 KiB").unwrap();
    assert!(sent["sender"]["system_ns"].is_u64() && sent["bytes"] == 1 << 20, "{sent}");
}

#[test]
fn pipes_are_compared_as_in_the_paper_and_drawn() {
    let program = Program::new();
    let report = program.report(&["--evermap", FAKE, "--sizes", "4KiB", "pipes"]);
    has(
        &report,
        &[
            "**average data rate**",
            "| 4 KiB, same file system, warm |",
            "send: splice, 2 connections",
        ],
    );
    for cell in ["xfs to tmpfs, cold", "squashfs zstd", "erofs lz4hc", "btrfs zstd"] {
        assert!(report.contains(cell) || report.contains("**Skipped"), "{cell}:\n{report}");
    }
    assert!(report.contains("nothing is measured inside a process"), "{report}");
    assert!(program.plot("transfer-pipes.svg").contains("8 pipes"));
    assert!(program.plot("transfer-pipes-rate.svg").contains("dual-pipe"));
}

#[test]
fn sections_that_need_the_command_are_reported_as_skipped() {
    let report = Program::new().report(&["pipes", "goals"]);
    assert_eq!(report.matches("**Evermap itself is not measured here**").count(), 2, "{report}");
}

#[test]
fn an_unknown_section_is_refused_with_a_list_of_choices() {
    Program::new().0.refuses_unknown_sections("files, pipes, copies, sockets, goals");
}

/// Interrupts a long run. Returns false if no file system can be made on a loop device.
fn interrupt(signal: &str) -> bool {
    let arguments = ["--rounds", "100000", "--file-systems", "xfs", "--sizes", "4KiB", "files"];
    Program::new().0.interrupt(&arguments, signal)
}

#[test]
fn a_termination_signal_undoes_everything() {
    for signal in ["-TERM", "-INT", "-HUP"] {
        if !interrupt(signal) {
            return eprintln!("skipped: no xfs on a loop device here");
        }
    }
}

#[test]
fn a_kill_leaves_no_mount_no_device_no_file_and_no_process() {
    if !interrupt("-KILL") {
        eprintln!("skipped: no xfs on a loop device here");
    }
}

#[test]
fn the_guard_cleans_up_after_a_killed_run() {
    let folder = tempfile::tempdir().unwrap();
    let (left, setting) = (folder.path().join("left"), folder.path().join("setting"));
    std::fs::create_dir(&left).unwrap();
    std::fs::write(left.join("image"), "much").unwrap();
    std::fs::write(&setting, "0").unwrap();
    let mut guard = Guard::start(Path::new(PROGRAM)).unwrap();
    guard.remove(&left).unwrap();
    guard.write("128", &setting).unwrap();
    assert!(left.exists());
    // Closes the pipe, as the kernel does when the run is killed.
    drop(guard);
    assert!(!left.exists());
    assert_eq!(std::fs::read_to_string(setting).unwrap(), "128");
}
