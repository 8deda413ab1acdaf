//! Runs each section as a quick run, with the peers alone and with a stand-in for the command.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::guard::Guard;
use common::leftovers::{left_behind, loop_devices, until};
use tempfile::TempDir;

const FAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake-evermap");
const PROGRAM: &str = env!("CARGO_BIN_EXE_evermap-transfer-bench");

struct Bench {
    /// Working folder, empty after each run.
    folder: TempDir,
    results: TempDir,
}

impl Bench {
    fn new() -> Bench {
        Bench { folder: tempfile::tempdir().unwrap(), results: tempfile::tempdir().unwrap() }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(["--quick", "--rounds", "1", "--folder"]).arg(self.folder.path());
        command.arg("--images").arg(self.results.path());
        command.arg("--json").arg(self.results.path().join("raw"));
        command.args(arguments).env("EVERMAP_BENCH_WAIT", "0").env_remove("EVERMAP_COMMAND");
        command.env("FAKE_PROGRAMS", Path::new(PROGRAM).parent().unwrap());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
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

    /// Returns a plot after checking that it is well-formed and has everything inside.
    fn plot(&self, name: &str) -> String {
        let svg = std::fs::read_to_string(self.results.path().join(name)).unwrap();
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
    let bench = Bench::new();
    let report = bench.report(&SMALL);
    for wanted in [
        "### tmpfs, warm, unsynced",
        "| wall, ms | text 4 KiB |",
        "| cat |",
        "| dd bs=1M |",
        "| std::fs::copy |",
    ] {
        assert!(report.contains(wanted), "{wanted} in:\n{report}");
    }
    assert!(report.contains("Evermap itself is not measured"), "{report}");
    let lines = bench.lines();
    let cat: Vec<_> = lines.iter().filter(|line| line["subject"] == "cat").collect();
    assert_eq!(cat.len(), 1);
    assert!(cat[0]["wall_ns"].as_u64().unwrap() > 0 && cat[0]["bytes"] == 4096, "{cat:?}");
    assert!(bench.plot("transfer-files-tmpfs-warm-unsynced.svg").contains("std::fs::copy"));
}

#[test]
fn evermap_is_compared_with_its_fastest_peer_and_names_its_engine() {
    let bench = Bench::new();
    let mut arguments = SMALL.to_vec();
    arguments[7] = "cat,evermap,splice";
    arguments.extend(["--evermap", FAKE]);
    let report = bench.report(&arguments);
    let judged = |line: &&str| line.starts_with("| text 4 KiB | ") && line.contains("cat | ");
    let line = report.lines().find(judged).unwrap();
    assert!(line.ends_with("| read-write |"), "{line}");
    assert!(report.contains("| uring-splice |") && !report.contains("in fact by"), "{report}");
}

#[test]
fn a_wrong_copy_ends_the_run_and_names_its_subject() {
    let bench = Bench::new();
    let mut arguments = SMALL.to_vec();
    arguments[7] = "evermap";
    arguments.extend(["--evermap", FAKE]);
    let output = bench.command(&arguments).env("FAKE_WRONG", "1").output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(stderr.contains("**wrong copy** by evermap copy"), "{stderr}");
    until("everything is undone", || left_behind(bench.folder.path()).is_empty());
}

#[test]
fn goals_are_judged_or_reported_as_not_measured() {
    let bench = Bench::new();
    let report = bench.report(&["--evermap", FAKE, "--file-systems", "tmpfs", "goals"]);
    for wanted in [
        "cp / evermap | >= 1.15",
        "to a socket, woken for each segment: sender's CPU",
        "to a socket, woken each 128 KiB: rate",
        "KiB allocated | <= 4 |",
        "cp -a / evermap | >= 1.5",
    ] {
        assert!(report.contains(wanted), "{wanted} in:\n{report}");
    }
    assert!(report.contains("not measured: run `files` in the same run"), "{report}");
    assert!(bench.lines().iter().any(|line| line["goal"]["at_least"] == 1.15));
}

#[test]
fn sockets_carry_every_byte_and_both_ends_are_measured() {
    let bench = Bench::new();
    let report = bench.report(&["--evermap", FAKE, "sockets"]);
    for wanted in [
        "### TCP, random 1 MiB, discarded",
        "### UNIX",
        "`evermap receive` to a file",
        "| send: splice |",
    ] {
        assert!(report.contains(wanted), "{wanted} in:\n{report}");
    }
    let lines = bench.lines();
    let sent = lines.iter().find(|line| line["subject"] == "read + send 64 KiB").unwrap();
    assert!(sent["sender"]["system_ns"].is_u64() && sent["bytes"] == 1 << 20, "{sent}");
}

#[test]
fn pipes_are_compared_as_in_the_paper_and_drawn() {
    let bench = Bench::new();
    let report = bench.report(&["--evermap", FAKE, "--sizes", "4KiB", "pipes"]);
    for wanted in [
        "**average data rate**",
        "| 4 KiB, same file system, warm |",
        "send: splice, 2 connections",
    ] {
        assert!(report.contains(wanted), "{wanted} in:\n{report}");
    }
    for cell in ["xfs to tmpfs, cold", "squashfs zstd", "erofs lz4hc", "btrfs zstd"] {
        assert!(report.contains(cell) || report.contains("**Skipped"), "{cell}:\n{report}");
    }
    assert!(report.contains("nothing is measured inside a process"), "{report}");
    assert!(bench.plot("transfer-pipes.svg").contains("8 pipes"));
    assert!(bench.plot("transfer-pipes-rate.svg").contains("dual-pipe"));
}

#[test]
fn sections_that_need_the_command_are_reported_as_skipped() {
    let report = Bench::new().report(&["pipes", "goals"]);
    assert_eq!(report.matches("**Evermap itself is not measured here**").count(), 2, "{report}");
}

#[test]
fn an_unknown_section_is_refused_with_a_list_of_choices() {
    let output = Bench::new().run(&["file"]);
    assert!(!output.status.success());
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("files, pipes, copies, sockets, goals")
    );
}

/// Waits until a file system is on a loop device, and sends a signal. Returns false if there is
/// none.
fn interrupt(bench: &Bench, signal: &str) -> bool {
    let arguments = ["--rounds", "100000", "--file-systems", "xfs", "--sizes", "4KiB", "files"];
    let mut command = bench.command(&arguments);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut ended = false;
    until("a loop device", || {
        ended = child.try_wait().unwrap().is_some();
        ended || !loop_devices(bench.folder.path()).is_empty()
    });
    if ended {
        return false;
    }
    // Lets the run get some way into its work.
    std::thread::sleep(std::time::Duration::from_millis(700));
    let pid = child.id().to_string();
    assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    assert!(!child.wait().unwrap().success());
    until("everything is undone", || left_behind(bench.folder.path()).is_empty());
    true
}

#[test]
fn a_termination_signal_undoes_everything() {
    for signal in ["-TERM", "-INT", "-HUP"] {
        if !interrupt(&Bench::new(), signal) {
            return eprintln!("skipped: no xfs on a loop device here");
        }
    }
}

#[test]
fn a_kill_leaves_no_mount_no_device_no_file_and_no_process() {
    if !interrupt(&Bench::new(), "-KILL") {
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
