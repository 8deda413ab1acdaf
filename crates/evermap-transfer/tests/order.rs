//! Order of writes, flushes and renames in the system calls, on which the state after a power cut
//! depends.
//!
//! Each copy runs in a child process under `strace`. Skipped if `strace` is missing or may not
//! trace. (`make test-vm` tests real power cuts.)
#![allow(clippy::unwrap_used)]

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use evermap_transfer::engines::EngineKind;
use evermap_transfer::net::{Receive, Send};
use evermap_transfer::{Copy, Durability};
use tempfile::TempDir;

/// Environment variable with the durability and kind of copy for the traced process.
const ORDER: &str = "EVERMAP_TEST_ORDER";
const DIRECTORY: &str = "EVERMAP_TEST_DIRECTORY";

#[test]
#[ignore = "child process that other tests trace"]
fn child_with_one_copy() {
    let (Ok(order), Some(temp)) = (std::env::var(ORDER), std::env::var_os(DIRECTORY)) else {
        return;
    };
    let (durability, kind) = order.split_once(' ').unwrap();
    let durability = match durability {
        "none" => Durability::None,
        "data" => Durability::Data,
        _ => Durability::Full,
    };
    let (from, to) = (Path::new(&temp).join("from"), Path::new(&temp).join("to"));
    if kind.starts_with("received") {
        let (here, there) = UnixStream::pair().unwrap();
        let is_raw = kind == "received raw";
        let receive = Receive::new(to).engine(EngineKind::ReadWrite).durability(durability);
        let receive = receive.raw(is_raw);
        let receiver = std::thread::spawn(move || receive.over(there).unwrap());
        assert_eq!(Send::new(from).raw(is_raw).over(here).unwrap().published, !is_raw);
        receiver.join().unwrap();
        return;
    }
    // An engine whose calls are traced.
    let copy = Copy::new(from, to).durability(durability).engine(EngineKind::ReadWrite);
    copy.resume(kind == "resumed").run().unwrap();
}

fn can_trace() -> bool {
    let traced = Command::new("strace").args(["-e", "trace=none", "true"]).output();
    let can_trace = traced.is_ok_and(|output| output.status.success());
    if !can_trace {
        eprintln!("SKIPPED: strace is not installed or may not trace");
    }
    can_trace
}

/// Calls that change the copy, make it durable, or name it.
const CALLS: &str = "trace=write,pwrite64,ftruncate,fchown,fchownat,fchmod,fchmodat,utimensat,fsetxattr,fsync,\
                     fdatasync,syncfs,linkat,renameat,renameat2";

/// Copies under `strace`. Returns the events in `temp` in order, without repetitions.
fn traced(temp: &TempDir, durability: &str, kind: &str) -> Vec<String> {
    let (trace, temp) = (temp.path().join("trace"), temp.path().canonicalize().unwrap());
    let status = Command::new("strace")
        .args(["-f", "-qq", "-y", "-s", "0", "-e", "signal=none", "-e", CALLS, "-o"])
        .arg(&trace)
        .arg(std::env::current_exe().unwrap())
        .args(["child_with_one_copy", "--exact", "--ignored"])
        .env(ORDER, format!("{durability} {kind}"))
        .env(DIRECTORY, &temp)
        .stdout(Stdio::null())
        .status();
    assert!(status.unwrap().success());
    let text = std::fs::read_to_string(&trace).unwrap();
    let mut done: Vec<String> = Vec::new();
    for event in text.lines().filter_map(|line| event(line, temp.to_str().unwrap())) {
        if done.last() != Some(&event) {
            done.push(event);
        }
    }
    done
}

/// Parses a trace line: `PID CALL(FD<PATH>, ...) = 0`. Returns `None` for other paths and failed
/// calls.
fn event(line: &str, temp: &str) -> Option<String> {
    let (_, call) = line.split_once(' ')?;
    let (name, rest) = call.trim().split_once('(')?;
    if rest.contains(") = -1 ") {
        return None;
    }
    if matches!(name, "linkat" | "renameat" | "renameat2") {
        return rest.contains(temp).then(|| "name".to_string());
    }
    let path = rest.split_once('<')?.1.strip_prefix(temp)?;
    let what = match path.split_once('>')?.0 {
        "" => "directory",
        path if path.ends_with(".journal") => "journal",
        _ => "copy",
    };
    Some(match name {
        "syncfs" => "syncfs".to_string(),
        "fsync" | "fdatasync" => format!("{name} {what}"),
        _ => format!("change {what}"),
    })
}

fn temp_dir_with_file() -> TempDir {
    let temp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::write(temp.path().join("from"), vec![7; 300_000]).unwrap();
    temp
}

#[test]
fn file_is_flushed_before_it_is_named_and_its_directory_after() {
    if !can_trace() {
        return;
    }
    for kind in ["new", "replacing", "received", "received raw"] {
        let expected = [
            ("none", vec!["change copy", "name"]),
            ("data", vec!["change copy", "fdatasync copy", "name"]),
            ("full", vec!["change copy", "fsync copy", "name", "fsync directory"]),
        ];
        for (durability, expected) in expected {
            let temp = temp_dir_with_file();
            if kind == "replacing" {
                std::fs::write(temp.path().join("to"), "before").unwrap();
            }
            assert_eq!(traced(&temp, durability, kind), expected, "{durability}, {kind}");
        }
    }
}

#[test]
fn part_is_flushed_before_its_journal_records_it() {
    if !can_trace() {
        return;
    }
    let started = ["change journal", "fsync journal"];
    let recorded = ["fdatasync copy", "change journal", "fdatasync journal", "change copy"];
    let expected = [
        ("none", vec!["name"]),
        ("data", vec!["fdatasync copy", "name"]),
        ("full", vec!["fsync copy", "name", "fsync directory"]),
    ];
    for (durability, finished) in expected {
        let expected = [&started[..], &["change copy"], &recorded, &finished].concat();
        assert_eq!(traced(&temp_dir_with_file(), durability, "resumed"), expected, "{durability}");
    }
}

#[test]
fn whole_tree_is_flushed_before_it_is_named() {
    if !can_trace() {
        return;
    }
    let expected = [
        ("none", vec!["change copy", "name"]),
        ("data", vec!["change copy", "syncfs", "name"]),
        ("full", vec!["change copy", "syncfs", "name", "fsync directory"]),
    ];
    for (durability, expected) in expected {
        let temp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        std::fs::create_dir_all(temp.path().join("from/inner")).unwrap();
        for (name, bytes) in [("small", 5_000), ("inner/small", 100), ("inner/large", 300_000)] {
            std::fs::write(temp.path().join("from").join(name), vec![7; bytes]).unwrap();
        }
        assert_eq!(traced(&temp, durability, "tree"), expected, "{durability}");
    }
}
