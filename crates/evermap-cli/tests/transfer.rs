//! `copy` and `bench transfer`: results, output and leftovers.

#![allow(clippy::unwrap_used)]

mod common;

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::Place;

fn names(place: &Place, directory: &str) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(place.path(directory))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn a_copy_prints_nothing_and_keeps_contents_and_attributes() {
    let place = Place::new();
    place.file("from", "content");
    assert_eq!(place.ok(&["copy", "from", "to"]), "");
    let (from, to) = (place.path("from").metadata().unwrap(), place.path("to").metadata().unwrap());
    assert_eq!(std::fs::read(place.path("to")).unwrap(), b"content");
    assert_eq!((from.mode(), from.mtime_nsec()), (to.mode(), to.mtime_nsec()));
}

#[test]
fn explain_names_the_engine_and_the_reasons_against_the_others() {
    let place = Place::new();
    place.file("from", vec![7; 1 << 20]);
    let stdout = place.ok(&[
        "copy",
        "from",
        "to",
        "--explain",
        "--verify",
        "--durability",
        "full",
        "--reflink",
        "never",
    ]);
    for part in [
        "1.05 MB",
        "engine ",
        "because",
        "not       reflink: sharing extents is disabled",
        "verified",
    ] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
    let named = place.ok(&["copy", "from", "to", "--explain", "--engine", "sendfile"]);
    assert!(named.contains("engine    sendfile: 1.05 MB"), "{named}");
}

#[test]
fn json_has_the_information_of_explain() {
    let place = Place::new();
    place.file("from", vec![7; 300_000]);
    place.file("other", "x");
    std::fs::create_dir(place.path("into")).unwrap();
    let stdout = place.ok(&["copy", "from", "other", "into", "--json", "--engine", "read-write"]);
    let reports: Vec<serde_json::Value> =
        stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(reports.len(), 2);
    assert_eq!(reports[0]["size_bytes"], 300_000);
    assert_eq!(reports[0]["engines"][0]["engine"], "read-write");
    assert_eq!(reports[0]["engines"][0]["copies"], 2);
    assert!(reports[0]["usage"]["wall_s"].as_f64().unwrap() > 0.0);
    assert_eq!(names(&place, "into"), ["from", "other"]);
    for (report, name) in reports.iter().zip(["from", "other"]) {
        assert_eq!(report["source"], name);
        assert_eq!(report["target"], format!("into/{name}"));
    }
}

/// Each line of `--json` has the source as it was given, and the path of the copy.
#[test]
fn json_names_source_and_target_of_each_copy() {
    let place = Place::new();
    std::fs::create_dir_all(place.path("tree/sub")).unwrap();
    place.file("tree/file", "x");
    for (arguments, source, target) in [
        (&["tree/file", "file"][..], "tree/file", "file"),
        (&["tree", "new"], "tree", "new"),
        (&["tree", "new"], "tree", "new/tree"),
        (&["-T", "tree", "new"], "tree", "new"),
        (&["tree/.", "new"], "tree/.", "new"),
        (&["tree/sub/..", "new"], "tree/sub/..", "new/tree"),
        (&["tree/", "new/"], "tree/", "new/tree"),
    ] {
        let stdout = place.ok(&[&["copy", "--json"], arguments].concat());
        let report: serde_json::Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!((&report["source"], &report["target"]), (&source.into(), &target.into()));
        assert!(place.path(target).exists(), "{arguments:?}");
        assert!(report["size_bytes"].is_u64(), "{report}");
    }
}

#[test]
fn a_tree_is_copied_and_counted() {
    let place = Place::new();
    std::fs::create_dir_all(place.path("tree/inner")).unwrap();
    place.file("tree/a", "a");
    place.file("tree/inner/b", vec![1; 400_000]);
    let stdout = place.ok(&["copy", "tree", "copied", "--explain"]);
    assert!(stdout.contains("2 files, 2 directories"), "{stdout}");
    assert_eq!(std::fs::read(place.path("copied/inner/b")).unwrap(), vec![1; 400_000]);
    place.fails(2, "is inside tree", &["copy", "tree", "tree/inner/new"]);
}

#[test]
fn each_cause_has_its_exit_code_and_nothing_is_left() {
    let place = Place::new();
    place.file("from", "content");
    place.file("file", "a file");
    std::fs::create_dir(place.path("directory")).unwrap();
    place.fails(2, "same file", &["copy", "from", "from"]);
    place.fails(2, "not a directory", &["copy", "from", "file", "file"]);
    place.fails(
        2,
        "unknown engine; choose one of read-write",
        &["copy", "from", "to", "--engine", "x"],
    );
    place.fails(3, "missing", &["copy", "missing", "to"]);
    place.fails(3, "nowhere", &["copy", "from", "nowhere/to"]);
    place.fails(2, "has no file name", &["copy", "/", ".."]);
    place.fails(
        10,
        "engine `reflink` cannot move",
        &["copy", "/proc/version", "to", "--engine", "reflink"],
    );
    assert_eq!(names(&place, "."), ["directory", "file", "from"]);
    // A failure does not stop the remaining copies.
    place.fails(3, "missing", &["copy", "missing", "from", "directory"]);
    assert_eq!(names(&place, "directory"), ["from"]);
}

#[test]
fn an_interrupt_ends_a_copy_with_130_and_leaves_nothing() {
    let place = Place::new();
    let fifo = place.path("fifo");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let mut child = place.bare(&["copy", "fifo", "to"]).stderr(Stdio::piped()).spawn().unwrap();
    // The copy waits for more bytes after these.
    let mut writer = std::fs::OpenOptions::new().write(true).open(&fifo).unwrap();
    writer.write_all(&[1; 1000]).unwrap();
    let start = Instant::now();
    let id = rustix::process::Pid::from_child(&child);
    // One signal, because a second one kills the command. After a second the copy is waiting,
    // except on an extremely overloaded system.
    std::thread::sleep(Duration::from_secs(1));
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "the command does not end");
        std::thread::sleep(Duration::from_millis(10));
    };
    let mut stderr = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut stderr).unwrap();
    drop(writer);
    assert_eq!(status.code(), Some(130), "{stderr}");
    assert!(stderr.contains("interrupted; no partial file remains"), "{stderr}");
    assert_eq!(names(&place, "."), ["fifo"]);
}

#[test]
fn bench_compares_the_engines_on_the_users_disk() {
    let place = Place::new();
    let stdout = place
        .ok(&["bench", "transfer", ".", "--sizes", "4K,64K", "--rounds", "2", "--sync", "--cold"]);
    for part in ["4.10 kB, cold, until on the disk", "read-write", "splice", "two pipes = "] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
    let json = place.ok(&[
        "bench",
        "transfer",
        "--sizes",
        "8K",
        "--rounds",
        "3",
        "--engines",
        "splice",
        "--json",
    ]);
    let cells: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(cells[0]["wall_s"].as_array().unwrap().len(), 3);
    place.fails(2, "as 4096, 64K or 1G", &["bench", "transfer", "--sizes", "many"]);
    assert_eq!(names(&place, "."), Vec::<String>::new());
}
