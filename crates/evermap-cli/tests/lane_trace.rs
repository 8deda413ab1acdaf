//! `evermap lane trace`: records, imports and summarises traces. Errors are reported, and the exit
//! code is that of the recorded program.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{Place, Ran};

const SPC: &str = "0,0,4096,r,0.0\n0,8,4096,r,0.01\n0,0,4096,r,0.05\n1,100,512,w,0.06\n";

fn trace(place: &Place, arguments: &[&str]) -> Ran {
    let mut command = place.bare(&["lane", "trace"]);
    Ran::of(command.args(arguments).env("PATH", "/usr/bin:/bin").output().unwrap())
}

/// Returns true if strace can trace here.
fn can_trace() -> bool {
    let mut traced = Command::new("strace");
    traced.args(["-o", "/dev/null", "true"]).stderr(Stdio::null());
    let is_able = traced.status().is_ok_and(|status| status.success());
    if !is_able {
        eprintln!("skipped: strace is not installed, or may not trace");
    }
    is_able
}

#[test]
fn an_imported_trace_has_the_statistics_of_the_original() {
    let place = Place::new();
    place.file("a.spc", SPC);
    let imported = trace(&place, &["import", "a.spc", "-o", "a.jsonl"]);
    assert_eq!((imported.code, imported.err.as_str()), (0, ""));
    let lines = std::fs::read_to_string(place.path("a.jsonl")).unwrap();
    assert!(lines.starts_with("{\"evermap-trace\":1,\"from\":\"spc\"}\n{\"t\":0,"), "{lines}");
    let before = trace(&place, &["stat", "a.spc", "--json", "--fps", "24"]);
    let after = trace(&place, &["stat", "a.jsonl", "--json", "--fps", "24"]);
    assert_eq!(before.out, after.out);
    let statistics: serde_json::Value = serde_json::from_str(&after.out).unwrap();
    assert_eq!(statistics["reads"]["count"], 3);
    assert_eq!(statistics["pages"]["references"], 4);
    assert_eq!(statistics["pages"]["distinct"], 3);
    assert_eq!(statistics["frames"]["count"], 2);
    let text = trace(&place, &["stat", "a.jsonl"]);
    assert!(text.out.contains("4 requests of spc") && text.out.contains("asu0"), "{text:?}");
}

#[test]
fn traces_can_be_read_and_written_through_pipes() {
    let place = Place::new();
    let mut command = place.bare(&["lane", "trace", "import", "-", "-o", "-", "--fps", "24"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(SPC.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    assert!(lines.contains("\"t\":50000000,\"frame\":1,\"op\":\"read\""), "{lines}");
}

#[test]
fn invalid_lines_of_a_trace_are_reported_and_the_rest_is_read() {
    let place = Place::new();
    place.file("odd.spc", format!("{SPC}0,1,x,r,0.07\n"));
    let ran = trace(&place, &["stat", "odd.spc"]);
    assert_eq!(ran.code, 0);
    assert_eq!(ran.err, "evermap: line 5: left out, not a line of this format: 0,1,x,r,0.07\n");
    place.file("no.txt", "no trace\n");
    let ran = trace(&place, &["stat", "no.txt"]);
    assert_eq!(ran.code, 8);
    assert!(ran.err.contains("no.txt is not a trace"), "{ran:?}");
    assert_eq!(trace(&place, &["stat", "nonesuch"]).code, 3);
    assert_eq!(trace(&place, &["stat", "odd.spc", "--format", "vhs"]).code, 2);
    place.file("later.jsonl", "{\"evermap-trace\":9}\n");
    assert_eq!(trace(&place, &["stat", "later.jsonl"]).code, 5);
}

#[test]
fn an_existing_file_is_replaced_only_with_force() {
    let place = Place::new();
    place.file("a.spc", SPC);
    place.file("out", "precious");
    let refused = trace(&place, &["import", "a.spc", "-o", "out"]);
    assert_eq!(refused.code, 9, "{refused:?}");
    // The check comes before the program starts.
    let refused = trace(&place, &["record", "-o", "out", "--", "touch", "ran"]);
    assert_eq!(refused.code, 9, "{refused:?}");
    assert!(!place.path("ran").exists());
    assert_eq!(std::fs::read_to_string(place.path("out")).unwrap(), "precious");
    assert_eq!(trace(&place, &["import", "a.spc", "-o", "out", "--force"]).code, 0);
    assert!(std::fs::read_to_string(place.path("out")).unwrap().starts_with("{\"evermap"));
}

#[test]
fn a_missing_tool_is_named_with_its_package() {
    let place = Place::new();
    for (tool, package) in [("strace", "package strace"), ("perf", "linux-perf")] {
        let mut command = place.bare(&["lane", "trace", "record", "--with", tool, "-o", "out"]);
        let ran =
            Ran::of(command.args(["--", "/bin/true"]).env("PATH", "/nonesuch").output().unwrap());
        assert_eq!(ran.code, 125, "{ran:?}");
        assert!(ran.err.contains(package), "{ran:?}");
        assert!(!place.path("out").exists());
    }
}

#[test]
fn reads_of_a_program_are_recorded_with_offsets_and_frames() {
    if !can_trace() {
        return;
    }
    let place = Place::new();
    let data = place.file("data", vec![7_u8; 100_000]);
    let line = "dd if=data of=/dev/null bs=40000 status=none; echo done";
    let command = ["record", "-o", "out.jsonl", "--fps", "24", "--", "sh", "-c", line];
    let ran = trace(&place, &command);
    assert_eq!((ran.code, ran.out.as_str()), (0, "done\n"), "{ran:?}");
    let text = std::fs::read_to_string(place.path("out.jsonl")).unwrap();
    let name = data.canonicalize().unwrap().display().to_string();
    let mut reads = Vec::new();
    for line in text.lines().skip(1) {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(event["frame"].is_u64(), "{line}");
        if event["file"] == name && event["op"] == "read" {
            assert!(event["lat"].as_u64().unwrap() > 0, "{line}");
            reads.push((event["off"].as_u64().unwrap(), event["len"].as_u64().unwrap()));
        }
    }
    assert_eq!(reads, [(0, 40_000), (40_000, 40_000), (80_000, 20_000), (100_000, 0)]);
}

#[test]
fn the_exit_code_is_that_of_the_recorded_program() {
    if !can_trace() {
        return;
    }
    let place = Place::new();
    place.file("no-program", "neither text nor code");
    let ran = |line: &[&str]| {
        let _ = std::fs::remove_file(place.path("out"));
        trace(&place, &[&["record", "-o", "out", "--"], line].concat())
    };
    assert_eq!(ran(&["sh", "-c", "exit 7"]).code, 7);
    assert_eq!(ran(&["sh", "-c", "kill -TERM $$"]).code, 143);
    assert!(place.path("out").exists());
    let not_started = ran(&["./no-program"]);
    assert_eq!(not_started.code, 126, "{not_started:?}");
    assert!(not_started.err.contains("EACCES"), "{not_started:?}");
    assert!(!place.path("out").exists());
    assert_eq!(ran(&["nonesuch-program"]).code, 127);
}

#[test]
fn an_interrupt_ends_the_program_and_keeps_the_recording() {
    if !can_trace() {
        return;
    }
    let place = Place::new();
    place.file("data", "some bytes");
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let line = "cat data; echo ready; exec sleep 600";
        let mut command = place
            .bare(&["lane", "trace", "record", "--force", "-o", "out", "--", "sh", "-c", line]);
        command.env("PATH", "/usr/bin:/bin").stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        while !lines.next().unwrap().unwrap().ends_with("ready") {}
        let id = rustix::process::Pid::from_child(&child);
        match signal {
            // To the whole process group, as a terminal does. The other signal goes to one process,
            // as `kill` does.
            rustix::process::Signal::INT => rustix::process::kill_process_group(id, signal),
            _ => rustix::process::kill_process(id, signal),
        }
        .unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(128 + signal.as_raw()));
        let text = std::fs::read_to_string(place.path("out")).unwrap();
        assert!(text.contains("/data\""), "{text}");
        let _ = std::fs::remove_file(place.path("out"));
    }
}

#[test]
fn processes_that_outlive_the_program_are_recorded_to_their_end() {
    if !can_trace() {
        return;
    }
    let place = Place::new();
    place.file("data", "some bytes");
    let line = "(sleep 0.3; cat data >/dev/null) & exit 3";
    let ran = trace(&place, &["record", "-o", "out", "--", "sh", "-c", line]);
    assert_eq!(ran.code, 3);
    let text = std::fs::read_to_string(place.path("out")).unwrap();
    assert!(text.contains("/data\""), "{text}");
}

#[test]
fn an_interrupt_ends_the_recording_of_processes_that_outlive_the_program() {
    if !can_trace() {
        return;
    }
    let place = Place::new();
    place.file("data", "some bytes");
    let line = "(while :; do read line <data; done) >/dev/null & echo $$";
    let mut command = place.bare(&["lane", "trace", "record", "-o", "out", "--", "sh", "-c", line]);
    // strace prints messages while the remaining process runs.
    command.env("PATH", "/usr/bin:/bin").stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.process_group(0).spawn().unwrap();
    let group = rustix::process::Pid::from_child(&child);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let program: u32 = lines.next().unwrap().unwrap().parse().unwrap();
    // Until the program has ended, it handles an interrupt itself.
    while Path::new(&format!("/proc/{program}")).exists() {
        sleep(Duration::from_millis(5));
    }
    sleep(Duration::from_millis(300));
    rustix::process::kill_process(group, rustix::process::Signal::INT).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let ended = loop {
        match child.try_wait().unwrap() {
            None if Instant::now() < until => sleep(Duration::from_millis(20)),
            ended => break ended,
        }
    };
    // Kills the remaining processes.
    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    assert_eq!(ended.expect("the recording ends").code(), Some(0));
    let text = std::fs::read_to_string(place.path("out")).unwrap();
    assert!(text.contains("/data\""), "{}", text.len());
}

/// Returns the sorted names in a directory.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_recorder_that_is_killed_leaves_no_files() {
    let place = Place::new();
    let temporary = place.path("temporary");
    std::fs::create_dir(&temporary).unwrap();
    for tool in ["strace", "perf"] {
        let line = "echo ready; exec sleep 600";
        let mut command = place.bare(&["lane", "trace", "record", "--with", tool, "-o", "out"]);
        command.args(["--", "sh", "-c", line]).env("PATH", "/usr/bin:/bin");
        command.env("TMPDIR", &temporary).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.process_group(0).spawn().unwrap();
        let group = rustix::process::Pid::from_child(&child);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        if lines.next().is_none() {
            eprintln!("skipped: {tool} is not installed, or may not record");
            child.wait().unwrap();
            continue;
        }
        // The named pipe of strace exists until its first line is read.
        let until = Instant::now() + Duration::from_secs(20);
        while !names(&temporary).is_empty() && Instant::now() < until {
            sleep(Duration::from_millis(5));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        assert_eq!(names(&temporary), Vec::<String>::new(), "{tool}");
        assert_eq!(names(&place.path(".")), ["temporary"], "{tool}");
    }
}

#[test]
fn warnings_of_a_recording_have_no_line_numbers() {
    if !can_trace() {
        return;
    }
    let place = Place::new();
    let ran = trace(&place, &["record", "-o", "out", "--", "sh", "-c", "echo x >>log"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.err.contains("it is appended to"), "{ran:?}");
    assert!(!ran.err.contains("line "), "{ran:?}");
}

#[test]
fn requests_that_reach_the_disk_are_recorded_by_perf() {
    let place = Place::new();
    // The target directory is on a disk. `/tmp` may be in memory.
    let folder = tempfile::tempdir_in(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let data = folder.path().join("data");
    let file = format!("of={}", data.display());
    let dd = ["dd", "if=/dev/zero", &file, "bs=65536", "count=4", "oflag=direct", "status=none"];
    let ran = trace(&place, &[&["record", "--with", "perf", "-o", "out", "--"], &dd[..]].concat());
    if ran.code == 125 {
        // Every cause is reported with a remedy.
        assert!(
            ran.err.contains("install the package") || ran.err.contains("CAP_PERFMON"),
            "{ran:?}"
        );
        eprintln!("skipped: {}", ran.err);
        return;
    }
    if ran.code != 0 {
        eprintln!("skipped: direct writes are not possible here: {}", ran.err);
        return;
    }
    // `HOME` is this directory too: perf leaves no files.
    assert_eq!(names(&place.path(".")), ["out"]);
    let text = std::fs::read_to_string(place.path("out")).unwrap();
    let writes: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|event| event["op"] == "write")
        .collect();
    if writes.is_empty() {
        eprintln!("skipped: {} is not on a disk", folder.path().display());
        return;
    }
    let bytes: u64 = writes.iter().map(|event| event["len"].as_u64().unwrap()).sum();
    assert!(bytes >= 4 * 65_536, "{text}");
    // On some machines perf sees the start of a request, but seldom or never its end.
    if !writes.iter().any(|event| event["lat"].is_u64()) {
        eprintln!("perf saw no end of a request here, so there are no latencies");
    }
}
