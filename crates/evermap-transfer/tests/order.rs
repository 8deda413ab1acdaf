//! The order of changes, flushes and names, as the kernel is asked for them: what a power cut leaves depends on it.
//!
//! Each copy runs in a process of its own under `strace`; where that is not installed, or may not trace, nothing is tested here. (`make
//! test-vm` cuts the power.)
#![allow(clippy::unwrap_used)]

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use evermap_transfer::engines::EngineKind;
use evermap_transfer::net::{Receive, Send};
use evermap_transfer::{Copy, Durability};
use tempfile::TempDir;

/// How the process that is traced is told what to copy: a durability and a kind.
const ORDER: &str = "EVERMAP_TEST_ORDER";
const PLACE: &str = "EVERMAP_TEST_PLACE";

#[test]
#[ignore = "a program that other tests trace"]
fn act_of_one_copy() {
    let (Ok(order), Some(place)) = (std::env::var(ORDER), std::env::var_os(PLACE)) else { return };
    let (durability, kind) = order.split_once(' ').unwrap();
    let durability = match durability {
        "none" => Durability::None,
        "data" => Durability::Data,
        _ => Durability::Full,
    };
    let (from, to) = (Path::new(&place).join("from"), Path::new(&place).join("to"));
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
    // An engine whose calls are among those that are traced.
    let copy = Copy::new(from, to).durability(durability).engine(EngineKind::ReadWrite);
    copy.resume(kind == "resumed").run().unwrap();
}

fn can_trace() -> bool {
    let traced = Command::new("strace").args(["-e", "trace=none", "true"]).output();
    let can_trace = traced.is_ok_and(|output| output.status.success());
    if !can_trace {
        eprintln!("SKIPPED: strace is not installed, or may not trace");
    }
    can_trace
}

/// Calls that change what is to be copied, make it durable, or give it a name.
const CALLS: &str = "trace=write,pwrite64,ftruncate,fchown,fchownat,fchmod,fchmodat,utimensat,fsetxattr,fsync,\
                     fdatasync,syncfs,linkat,renameat,renameat2";

/// Copies under `strace`, and says what was done in `place`, in order. What repeats is said once.
fn traced(place: &TempDir, durability: &str, kind: &str) -> Vec<String> {
    let (trace, place) = (place.path().join("trace"), place.path().canonicalize().unwrap());
    let status = Command::new("strace")
        .args(["-f", "-qq", "-y", "-s", "0", "-e", "signal=none", "-e", CALLS, "-o"])
        .arg(&trace)
        .arg(std::env::current_exe().unwrap())
        .args(["act_of_one_copy", "--exact", "--ignored"])
        .env(ORDER, format!("{durability} {kind}"))
        .env(PLACE, &place)
        .stdout(Stdio::null())
        .status();
    assert!(status.unwrap().success());
    let text = std::fs::read_to_string(&trace).unwrap();
    let mut done: Vec<String> = Vec::new();
    for event in text.lines().filter_map(|line| event(line, place.to_str().unwrap())) {
        if done.last() != Some(&event) {
            done.push(event);
        }
    }
    done
}

/// What a line of the trace is about: `PID CALL(FD<PATH>, ...) = 0`. `None`: nothing in `place`, or a call that failed.
fn event(line: &str, place: &str) -> Option<String> {
    let (_, call) = line.split_once(' ')?;
    let (name, rest) = call.trim().split_once('(')?;
    if rest.contains(") = -1 ") {
        return None;
    }
    if matches!(name, "linkat" | "renameat" | "renameat2") {
        return rest.contains(place).then(|| "name".to_string());
    }
    let path = rest.split_once('<')?.1.strip_prefix(place)?;
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

fn place_with_a_file() -> TempDir {
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::write(place.path().join("from"), vec![7; 300_000]).unwrap();
    place
}

#[test]
fn a_file_is_flushed_before_it_has_its_name_and_its_directory_after() {
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
            let place = place_with_a_file();
            if kind == "replacing" {
                std::fs::write(place.path().join("to"), "before").unwrap();
            }
            assert_eq!(traced(&place, durability, kind), expected, "{durability}, {kind}");
        }
    }
}

#[test]
fn a_part_is_flushed_before_its_journal_vouches_for_it() {
    if !can_trace() {
        return;
    }
    let begun = ["change journal", "fsync journal"];
    let vouched = ["fdatasync copy", "change journal", "fdatasync journal", "change copy"];
    let expected = [
        ("none", vec!["name"]),
        ("data", vec!["fdatasync copy", "name"]),
        ("full", vec!["fsync copy", "name", "fsync directory"]),
    ];
    for (durability, ended) in expected {
        let expected = [&begun[..], &["change copy"], &vouched, &ended].concat();
        assert_eq!(traced(&place_with_a_file(), durability, "resumed"), expected, "{durability}");
    }
}

#[test]
fn all_of_a_tree_is_flushed_before_it_has_its_name() {
    if !can_trace() {
        return;
    }
    let expected = [
        ("none", vec!["change copy", "name"]),
        ("data", vec!["change copy", "syncfs", "name"]),
        ("full", vec!["change copy", "syncfs", "name", "fsync directory"]),
    ];
    for (durability, expected) in expected {
        let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        std::fs::create_dir_all(place.path().join("from/inner")).unwrap();
        for (name, bytes) in [("small", 5_000), ("inner/small", 100), ("inner/large", 300_000)] {
            std::fs::write(place.path().join("from").join(name), vec![7; bytes]).unwrap();
        }
        assert_eq!(traced(&place, durability, "tree"), expected, "{durability}");
    }
}
