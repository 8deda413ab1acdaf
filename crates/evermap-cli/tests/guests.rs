//! Guests as a user runs them: built from source, started by the command, their heaps found again.
#![cfg(feature = "sandbox")]
#![allow(clippy::unwrap_used)]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::Place;

/// A guest that asks for nothing but what the text says: the exit code is 7.
const EXITS: &str = r#"(module
    (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
    (memory (export "memory") 1)
    (func (export "_start") (call $exit (i32.const 7))))"#;

/// Maps `heap` for writing, adds one to its first word and exits with what that is; with the negative
/// code where it cannot map it.
const COUNTS: &str = r#"(module
    (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
    (import "evermap" "map" (func $map (param i32 i32 i32 i32) (result i32)))
    (import "evermap" "commit" (func $commit (param i32) (result i32)))
    (memory (export "memory") 20481)
    (data (i32.const 0x50000000) "heap")
    (func (export "_start") (local $object i32) (local $count i32)
        (local.set $object (call $map (i32.const 0x50000000) (i32.const 4) (i32.const 65536) (i32.const 3)))
        (if (i32.lt_s (local.get $object) (i32.const 0))
            (then (call $exit (i32.sub (i32.const 100) (local.get $object)))))
        (local.set $count (i32.add (local.get $object) (i32.const 65536)))
        (i32.store (local.get $count) (i32.add (i32.load (local.get $count)) (i32.const 1)))
        (drop (call $commit (local.get $object)))
        (call $exit (i32.load (local.get $count)))))"#;

/// An example of the guests' crate, built for guests; none, with a notice, where that cannot be.
fn built(example: &str) -> Option<PathBuf> {
    let messages = built_by(&["build", "--example", example])?;
    executable(&messages, example)
}

/// The same of its tests.
fn built_tests(tests: &str) -> Option<PathBuf> {
    let messages = built_by(&["test", "--no-run", "--test", tests])?;
    executable(&messages, tests)
}

/// The program of this name that cargo's messages tell of.
fn executable(messages: &str, name: &str) -> Option<PathBuf> {
    let messages = messages.lines().map(|line| serde_json::from_str(line).unwrap());
    let mut found = messages.filter_map(|message: serde_json::Value| {
        let of_this = message["target"]["name"] == name;
        of_this.then(|| Some(PathBuf::from(message["executable"].as_str()?)))?
    });
    Some(found.next().unwrap())
}

/// What cargo says of building a part of the guests' crate for guests.
fn built_by(arguments: &[&str]) -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guests");
    let done = Command::new(env!("CARGO"))
        .args(arguments)
        .args(["--release", "--locked", "--package", "evermap-guest"])
        .args(["--message-format", "json", "--target", "wasm32-wasip1", "--target-dir"])
        .arg(&target)
        .current_dir(&root)
        .env_remove("CARGO_TARGET_DIR")
        .output()
        .unwrap();
    if !done.status.success() {
        let why = String::from_utf8_lossy(&done.stderr);
        let missing = why.contains("wasm32-wasip1") && why.contains("may not be installed");
        assert!(missing, "{why}");
        eprintln!(
            "SKIPPED: Rust's target wasm32-wasip1 is not installed (rustup target add wasm32-wasip1)"
        );
        return None;
    }
    Some(String::from_utf8(done.stdout).unwrap())
}

/// A program in C, with the guests' library; none, with a notice, where that cannot be.
fn compiled(place: &Place, source: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guests");
    if Command::new("clang-19").arg("--version").output().is_err() {
        eprintln!(
            "SKIPPED: no clang-19 (Debian: clang-19 lld-19 wasi-libc libclang-rt-19-dev-wasm32)"
        );
        return None;
    }
    let library = Command::new(env!("CARGO"))
        .args(["rustc", "--release", "--locked", "--package", "evermap-guest", "--lib"])
        .args(["--crate-type", "staticlib", "--features", "c", "--target", "wasm32-wasip1"])
        .arg("--target-dir")
        .arg(&target)
        .current_dir(&root)
        .env_remove("CARGO_TARGET_DIR")
        .output()
        .unwrap();
    if !library.status.success() {
        eprintln!("SKIPPED: the library for guests in C is not built: is wasm32-wasip1 installed?");
        return None;
    }
    let guest = root.join("crates/evermap-guest");
    let program = place.path("program.wasm");
    let done = Command::new("clang-19")
        .args(["--target=wasm32-wasi", "--sysroot=/usr", "-O2", "-Wall", "-Werror"])
        .args(["-Wl,--global-base=1342177280", "-Wl,--stack-first"])
        .arg("-I")
        .arg(guest.join("include"))
        .arg(guest.join("examples").join(source))
        .arg(target.join("wasm32-wasip1/release/libevermap_guest.a"))
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Some(program)
}

#[test]
fn a_rust_guest_finds_its_words_again() {
    let Some(module) = built("guest_words") else { return };
    let place = Place::new();
    let module = module.to_str().unwrap();
    let first = place.run(&["sandbox", "run", module, "--", "one", "two", "one"]);
    assert_eq!(first.code, 0, "{first:?}");
    let second = place.run(&["sandbox", "run", module, "--report", "--", "two"]);
    assert_eq!(second.code, 0, "{second:?}");
    let mut lines: Vec<&str> = second.out.lines().collect();
    assert_eq!(lines.remove(0), "run 2");
    lines.sort_unstable();
    assert_eq!(lines, ["one: 2", "two: 2"]);
    assert!(second.err.contains("1 commits"), "{}", second.err);
    let list = place.run(&["sandbox", "list"]);
    assert!(
        list.out.contains("guest_words:words") && list.out.contains("0x10000000"),
        "{}",
        list.out
    );
    let check = place.run(&["check"]);
    assert_eq!(check.code, 0, "{check:?}");
}

#[test]
fn a_guest_reads_what_another_application_shares_with_it() {
    let Some(module) = built("guest_words") else { return };
    let place = Place::new();
    let module = module.to_str().unwrap();
    assert_eq!(place.run(&["sandbox", "run", module, "--", "one", "two"]).code, 0);
    let reader = ["sandbox", "run", module, "--app", "reader", "--", "--show", "guest_words:words"];
    assert_ne!(place.run(&reader).code, 0, "before anything is shared");
    assert_eq!(place.run(&["sandbox", "grant", "reader", "guest_words:words:snapshot"]).code, 0);
    let shown = place.run(&reader);
    assert_eq!((shown.code, &shown.out[..]), (0, "run 1\none: 1\ntwo: 1\n"), "{shown:?}");
    assert_eq!(place.run(&["sandbox", "revoke", "reader", "guest_words:words"]).code, 0);
    assert_ne!(place.run(&reader).code, 0, "after it was taken back");
}

#[test]
fn guests_keep_the_promises_of_their_crate() {
    let Some(tests) = built_tests("api") else { return };
    let place = Place::new();
    let ran = place.run(&["sandbox", "run", tests.to_str().unwrap(), "--app", "api"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("an_object_with_two_names_is_open_once"), "{}", ran.out);
}

#[test]
fn a_c_guest_finds_its_list_again() {
    let place = Place::new();
    let Some(program) = compiled(&place, "runs.c") else { return };
    let program = program.to_str().unwrap();
    for run in 1..=3 {
        let ran = place.run(&["sandbox", "run", program]);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert_eq!(ran.out.lines().count(), run, "{ran:?}");
    }
}

#[test]
fn the_guests_exit_code_is_the_commands() {
    let place = Place::new();
    let module = place.file("exits.wat", EXITS);
    assert_eq!(place.run(&["sandbox", "run", module.to_str().unwrap()]).code, 7);
}

#[test]
fn rights_are_granted_held_to_and_revoked() {
    let place = Place::new();
    let module = place.file("counts.wat", COUNTS);
    let module = module.to_str().unwrap();
    let run =
        |arguments: &[&str]| place.run(&[&["sandbox", "run", module], arguments].concat()).code;
    assert_eq!((run(&[]), run(&[])), (1, 2));
    assert_eq!(run(&["--allow", "heap:snapshot"]), 104, "denied");
    assert_eq!(run(&["--app", "another"]), 1, "another application's heap is another one");
    assert_eq!(place.run(&["sandbox", "grant", "counts", "heap:none"]).code, 0);
    assert_eq!(run(&[]), 104);
    assert_eq!(place.run(&["sandbox", "revoke", "counts", "heap"]).code, 0);
    assert_eq!(run(&[]), 3);
    let list = place.run(&["sandbox", "list", "--json"]);
    assert!(list.out.contains(r#""object":"counts:heap""#), "{}", list.out);
}

#[test]
fn a_heap_is_opened_again_by_its_application_from_a_backup_and_after_a_restore() {
    let place = Place::new();
    let module = place.file("counts.wat", COUNTS);
    let module = module.to_str().unwrap();
    let run = || place.run(&["sandbox", "run", module]).code;
    assert_eq!(run(), 1);
    let copy = place.path("copy");
    let copy = copy.to_str().unwrap();
    assert_eq!(place.run(&["backup", copy]).code, 0);
    assert_eq!((run(), run()), (2, 3));
    let restored = place.run(&["restore", copy, "--force"]);
    assert_eq!(restored.code, 0, "{restored:?}");
    assert_eq!(run(), 2);
    let of_the_copy = place.bare(&["--store", copy, "sandbox", "run", module]).status().unwrap();
    assert_eq!(of_the_copy.code(), Some(2));
}

#[test]
fn a_bound_module_keeps_others_out() {
    let place = Place::new();
    let (counts, exits) = (place.file("counts.wat", COUNTS), place.file("exits.wat", EXITS));
    let (counts, exits) = (counts.to_str().unwrap(), exits.to_str().unwrap());
    let bound = place.run(&["sandbox", "grant", "app", "--module", counts]);
    assert_eq!(bound.code, 0, "{bound:?}");
    assert_eq!(place.run(&["sandbox", "run", counts, "--app", "app"]).code, 1);
    let refused = place.run(&["sandbox", "run", exits, "--app", "app"]);
    assert_eq!(refused.code, 6, "{refused:?}");
    assert!(refused.err.contains("is not bound to application `app`"), "{}", refused.err);

    // Nobody gets in because the last one was put out.
    assert_eq!(place.run(&["sandbox", "revoke", "app", "--module", counts]).code, 0);
    assert_eq!(place.run(&["sandbox", "run", counts, "--app", "app"]).code, 6);
    assert_eq!(place.run(&["sandbox", "grant", "app", "--any-module"]).code, 0);
    assert_eq!(place.run(&["sandbox", "run", exits, "--app", "app"]).code, 7);
}

/// Waits for an hour of the monotonic clock.
const SLEEPS: &str = r#"(module
    (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (func (export "_start")
        (i32.store (i32.const 16) (i32.const 1))
        (i64.store (i32.const 24) (i64.const 3600000000000))
        (drop (call $poll (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128)))))"#;

#[test]
fn a_guest_that_waits_is_ended_when_its_time_is_over() {
    let place = Place::new();
    let module = place.file("sleeps.wat", SLEEPS);
    let timed = place.run(&["sandbox", "run", module.to_str().unwrap(), "--timeout", "0.1"]);
    assert_eq!(timed.code, 134, "{timed:?}");
    assert!(timed.err.contains("--timeout"), "{}", timed.err);
}

#[test]
fn what_goes_wrong_is_said_in_a_line_with_a_remedy() {
    let place = Place::new();
    let module = place.file("spins.wat", r#"(module (func (export "_start") (loop $l (br $l))))"#);
    let module = module.to_str().unwrap();
    let timed = place.run(&["sandbox", "run", module, "--timeout", "0.1"]);
    assert_eq!(timed.code, 134, "{timed:?}");
    assert!(timed.err.contains("--timeout"), "{}", timed.err);
    let burnt = place.run(&["sandbox", "run", module, "--fuel", "1000"]);
    assert!(burnt.code == 134 && burnt.err.contains("--fuel"), "{burnt:?}");
    let missing = place.run(&["sandbox", "run", "nowhere.wasm"]);
    assert!(missing.code == 3 && missing.err.contains("nowhere.wasm"), "{missing:?}");
    let text = place.file("text.wasm", "no module");
    let text = place.run(&["sandbox", "run", text.to_str().unwrap()]);
    assert!(text.code == 125 && text.err.contains("text.wasm"), "{text:?}");
    let list = place.run(&["sandbox", "list"]);
    assert!(!list.out.contains("text"), "what was never run is no application: {}", list.out);
    let directory = place.path("").to_str().unwrap().to_string();
    let held = place.run(&["sandbox", "run", module, "--dir", &directory]);
    assert!(held.code == 6 && held.err.contains("preopen another directory"), "{held:?}");
    let level = place.run(&["sandbox", "grant", "app", "heap:all"]);
    assert!(level.code == 2 && level.err.contains("snapshot"), "{level:?}");
    let nobody = place.run(&["sandbox", "revoke", "nobody", "heap"]);
    assert!(nobody.code == 3 && nobody.err.contains("nobody"), "{nobody:?}");
    for lines in [&timed.err, &missing.err, &text.err, &held.err, &nobody.err] {
        assert_eq!(lines.trim_end().lines().count(), 1, "{lines}");
    }
}
