//! Guests as a user runs them: built from source, started by the command, reopening their heaps.
#![cfg(feature = "sandbox")]
#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/walkthrough.rs"]
mod walkthrough;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Place, contents};

/// A guest that only exits with 7.
const EXITS: &str = r#"(module
    (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
    (memory (export "memory") 1)
    (func (export "_start") (call $exit (i32.const 7))))"#;

/// A guest that maps `heap` for writing, increments its first word, and exits with the result. If
/// it cannot map `heap`, it exits with the negated error code.
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

/// Builds an example of the guest crate for guests. Prints a notice and returns `None` if that is
/// not possible.
fn built(example: &str) -> Option<PathBuf> {
    let messages = built_by(&["build", "--example", example])?;
    executable(&messages, example)
}

/// Builds tests of the guest crate, like [`built`].
fn built_tests(tests: &str) -> Option<PathBuf> {
    let messages = built_by(&["test", "--no-run", "--test", tests])?;
    executable(&messages, tests)
}

/// Returns the program with this name from cargo's messages.
fn executable(messages: &str, name: &str) -> Option<PathBuf> {
    let messages = messages.lines().map(|line| serde_json::from_str(line).unwrap());
    let mut found = messages.filter_map(|message: serde_json::Value| {
        let of_this = message["target"]["name"] == name;
        of_this.then(|| Some(PathBuf::from(message["executable"].as_str()?)))?
    });
    Some(found.next().unwrap())
}

/// Builds a part of the guest crate for guests. Returns cargo's messages.
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

/// C compilers: the default of Debian, and its newest one.
const COMPILERS: [&str; 2] = ["clang", "clang-19"];

/// Builds the C library for guests. Prints a notice and returns `None` if that is not possible.
fn library() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guests");
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
    Some(target.join("wasm32-wasip1/release/libevermap_guest.a"))
}

/// Compiles a C source with these linker flags. Prints a notice and returns `None` if the compiler
/// or its files for guests are not installed.
fn compiled(place: &Place, compiler: &str, source: &Path, flags: &[&str]) -> Option<PathBuf> {
    let skipped = |why: &str| {
        eprintln!(
            "SKIPPED: {compiler}: {why} (Debian: {compiler} lld wasi-libc, and libclang-rt-14-dev-wasm32 or \
             libclang-rt-19-dev-wasm32)"
        );
    };
    if Command::new(compiler).arg("--version").output().is_err() {
        skipped("it is not installed");
        return None;
    }
    let empty = place.file("empty.c", "int main(void) { return 0; }");
    let run = |source: &Path, rest: &[&std::ffi::OsStr], flags: &[&str]| {
        let program = place.path(&format!("{compiler}.wasm"));
        let done = Command::new(compiler)
            .args(["--target=wasm32-wasi", "--sysroot=/usr", "-O2", "-Wall", "-Werror"])
            .args(flags)
            .arg(source)
            .args(rest)
            .arg("-o")
            .arg(&program)
            .output()
            .unwrap();
        (done, program)
    };
    let (done, _) = run(&empty, &[], &[]);
    if !done.status.success() {
        skipped(String::from_utf8_lossy(&done.stderr).lines().next().unwrap_or_default());
        return None;
    }
    let library = library()?;
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../evermap-guest/include");
    let include = format!("-I{}", include.display());
    let (done, program) = run(source, &[include.as_ref(), library.as_ref()], flags);
    assert!(done.status.success(), "{compiler}: {}", String::from_utf8_lossy(&done.stderr));
    Some(program)
}

/// Linker flags in the documentation of the guest crate.
const FLAGS: &[&str] = &["-Wl,--global-base=1342177280", "-Wl,-z,stack-size=1048576"];

fn example(source: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../evermap-guest/examples").join(source)
}

#[test]
fn a_rust_guest_reopens_its_heap() {
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
    assert!(second.err.contains("1 commit,"), "{}", second.err);
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
fn the_tutorial_on_a_guests_heap_works() {
    let page = walkthrough::tutorial("guest-heap.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let source = std::fs::read_to_string(example("guest_words.rs")).unwrap();
    for part in text.split("```rust\n").skip(1) {
        let (part, _) = part.split_once("```").unwrap();
        assert!(source.contains(part), "not in guest_words.rs:\n{part}");
    }
    let Some(module) = built("guest_words") else { return };
    let place = Place::new();
    std::fs::copy(module, place.path("guest_words.wasm")).unwrap();
    let evermap = Path::new(env!("CARGO_BIN_EXE_evermap"));
    walkthrough::follow(&page, &place.path(""), &[("evermap", evermap)]);
}

#[test]
fn a_guest_reads_an_object_that_another_application_shares() {
    let Some(module) = built("guest_words") else { return };
    let place = Place::new();
    let module = module.to_str().unwrap();
    assert_eq!(place.run(&["sandbox", "run", module, "--", "one", "two"]).code, 0);
    let reader = ["sandbox", "run", module, "--app", "reader", "--", "--show", "guest_words:words"];
    assert_ne!(place.run(&reader).code, 0, "before the grant");
    assert_eq!(place.run(&["sandbox", "grant", "reader", "guest_words:words:snapshot"]).code, 0);
    let shown = place.run(&reader);
    assert_eq!((shown.code, &shown.out[..]), (0, "run 1\none: 1\ntwo: 1\n"), "{shown:?}");
    assert_eq!(place.run(&["sandbox", "revoke", "reader", "guest_words:words"]).code, 0);
    assert_ne!(place.run(&reader).code, 0, "after the revoke");
}

#[test]
fn the_tests_of_the_guest_crate_pass_in_a_guest() {
    let Some(tests) = built_tests("api") else { return };
    let place = Place::new();
    let ran = place.run(&["sandbox", "run", tests.to_str().unwrap(), "--app", "api"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("an_object_with_two_names_can_be_opened_only_once"), "{}", ran.out);
}

#[test]
fn a_c_guest_reopens_its_heap_with_every_compiler() {
    for compiler in COMPILERS {
        let place = Place::new();
        let Some(program) = compiled(&place, compiler, &example("runs.c"), FLAGS) else { continue };
        let program = program.to_str().unwrap();
        for run in 1..=3 {
            let ran = place.run(&["sandbox", "run", program]);
            assert_eq!(ran.code, 0, "{compiler}: {ran:?}");
            assert_eq!(ran.out.lines().count(), run, "{compiler}: {ran:?}");
        }
    }
}

#[test]
fn the_documented_commands_for_c_guests_are_the_tested_ones() {
    let readme = include_str!("../../evermap-guest/README.md");
    for flag in FLAGS {
        assert!(readme.contains(flag), "{flag}");
    }
    for compiler in COMPILERS {
        assert!(readme.contains(compiler), "{compiler}");
    }
}

/// A guest that reads a block, makes a block, and prints the errors.
const ASKS: &str = r#"#include <nvheap.h>
#include <stdio.h>
int main(void) {
    if (nvread("block", NULL) == NULL)
        printf("read: %s\n", nverror());
    if (nvmalloc("new", 8) == NULL)
        printf("new: %s\n", nverror());
    return 0;
}"#;

/// Returns true if `clang` links guests with version 14, which ignores the global base together
/// with `--stack-first`.
fn has_old_linker() -> bool {
    let version = Command::new("wasm-ld").arg("--version").output();
    version.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("LLD 14."))
}

#[test]
fn a_guest_linked_without_space_for_objects_names_the_missing_flag() {
    for compiler in COMPILERS {
        let place = Place::new();
        let source = place.file("asks.c", ASKS);
        // Without flags, with `--stack-first` alone, and with both, of which the old linker ignores
        // one.
        let mut wrong: Vec<&[&str]> = vec![&[], &["-Wl,--stack-first"]];
        if compiler == "clang" && has_old_linker() {
            wrong.push(&["-Wl,--global-base=1342177280", "-Wl,--stack-first"]);
        }
        for flags in wrong {
            let Some(program) = compiled(&place, compiler, &source, flags) else { continue };
            let ran = place.run(&["sandbox", "run", program.to_str().unwrap(), "--app", "asks"]);
            for line in ["read: ", "new: "] {
                let message = ran.out.lines().find(|message| message.starts_with(line)).unwrap();
                assert!(
                    message.contains("--global-base=1342177280"),
                    "{compiler} {flags:?}: {message}"
                );
            }
        }
    }
}

/// A guest that makes the block "block" in `nvheap`, and keeps the heap open for writing until its
/// standard input ends.
const WRITES: &str = r#"#include <nvheap.h>
#include <stdio.h>
int main(void) {
    if (nvmalloc("block", 8) == NULL || nvcommit() != 0)
        return 1;
    puts("written");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}"#;

/// A guest that opens the heap for writing (argument `write`) or by its first read, then makes a
/// block.
const READS: &str = r#"#include <errno.h>
#include <nvheap.h>
#include <stdio.h>
#include <string.h>
int main(int count, char **arguments) {
    if (count > 1 && strcmp(arguments[1], "write") == 0 && nvprotect(NV_WRITE) != 0) {
        printf("%s\n", errno == EBUSY ? "busy" : nverror());
        return 3;
    }
    if (nvread("block", NULL) == NULL)
        return 1;
    if (nvmalloc("new", 8) == NULL) {
        printf("%s: %s\n", errno == EROFS ? "read-only" : "else", nverror());
        return 2;
    }
    return 0;
}"#;

#[test]
fn a_c_guest_next_to_a_writer_can_read_and_gets_the_reason_why_it_cannot_write() {
    let Some(compiler) = COMPILERS.into_iter().find(|c| Command::new(c).arg("-v").output().is_ok())
    else {
        eprintln!("SKIPPED: clang is not installed");
        return;
    };
    let place = Place::new();
    let source = place.file("writes.c", WRITES);
    let Some(writer) = compiled(&place, compiler, &source, FLAGS) else { return };
    let moved = place.path("writes.wasm");
    std::fs::rename(writer, &moved).unwrap();
    let source = place.file("reads.c", READS);
    let Some(reader) = compiled(&place, compiler, &source, FLAGS) else { return };
    let reader = reader.to_str().unwrap();
    let mut writing = place
        .command(&["sandbox", "run", "writes.wasm", "--app", "app"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = std::io::BufReader::new(writing.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    assert_eq!(line, "written\n");
    let silently = place.run(&["sandbox", "run", reader, "--app", "app"]);
    assert_eq!(silently.code, 2, "{silently:?}");
    for part in ["read-only: ", "another guest or program was writing", "nvprotect(NV_WRITE)"] {
        assert!(silently.out.contains(part), "{silently:?}");
    }
    let explicit = place.run(&["sandbox", "run", reader, "--app", "app", "--", "write"]);
    assert_eq!((explicit.code, explicit.out.as_str()), (3, "busy\n"), "{explicit:?}");
    drop(writing.stdin.take());
    assert_eq!(writing.wait().unwrap().code(), Some(0));
    let alone = place.run(&["sandbox", "run", reader, "--app", "app", "--", "write"]);
    assert_eq!(alone.code, 0, "{alone:?}");
}

#[test]
fn the_exit_code_is_that_of_the_guest() {
    let place = Place::new();
    let module = place.file("exits.wat", EXITS);
    assert_eq!(place.run(&["sandbox", "run", module.to_str().unwrap()]).code, 7);
}

#[test]
fn rights_are_granted_enforced_and_revoked() {
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
fn a_failed_grant_or_revoke_changes_nothing() {
    let place = Place::new();
    let (counts, exits) = (place.file("counts.wat", COUNTS), place.file("exits.wat", EXITS));
    let (counts, exits) = (counts.to_str().unwrap(), exits.to_str().unwrap());
    let fails = |code: i32, says: &str, arguments: &[&str]| {
        let before = contents(&place.store());
        place.fails(code, says, &[&["sandbox"], arguments].concat());
        assert!(contents(&place.store()) == before, "{arguments:?} changed the store");
    };
    let shared = ["grant", "reader", "g:words:snapshot"];
    fails(3, "has no object `g:words`", &shared);
    fails(3, "nowhere.wasm", &["run", "nowhere.wasm"]);
    fails(2, "does not set a variable", &["run", exits, "--env", "nothing"]);
    assert!(!place.store().exists());
    place.file("page.html", "<p>text");
    place.ok(&["parse", "page.html"]);
    fails(3, "has no object `g:words`", &shared);
    fails(3, "no application `reader`", &["revoke", "reader", "g:words"]);
    fails(3, "no application `reader`", &["revoke", "reader", "--all"]);

    // An application with an object, and an application that may use it.
    assert_eq!(place.run(&["sandbox", "run", counts]).code, 1);
    place.ok(&["sandbox", "grant", "reader", "counts:heap:snapshot", "--module", counts]);
    for id in ["reader", "other"] {
        let sound: &[&str] = &["--quota", "3", "--module", exits, "own:none", "counts:heap:read"];
        fails(3, "`g:words`", &[&["grant", id], sound, &["g:words:snapshot"]].concat());
        fails(3, "nowhere.wasm", &[&["grant", id], sound, &["--module", "nowhere.wasm"]].concat());
        fails(2, "hexadecimal digits", &["grant", id, "own:none", "--signer", "abc"]);
        fails(2, "cannot name", &["grant", id, "own:none", "a b:none"]);
    }
    fails(3, "no granted right to `g:words`", &["revoke", "reader", "counts:heap", "g:words"]);
    fails(3, "is not bound", &["revoke", "reader", "counts:heap", "--module", exits]);
    fails(2, "remove the application with `--all`", &["revoke", "reader"]);
    fails(4, "has objects: `counts:heap`", &["revoke", "counts", "--all"]);
    place.ok(&["sandbox", "revoke", "reader", "counts:heap", "--module", counts]);
}

#[test]
fn an_application_without_objects_is_removed_with_its_rights_and_its_key() {
    let place = Place::new();
    let (counts, exits) = (place.file("counts.wat", COUNTS), place.file("exits.wat", EXITS));
    let (counts, exits) = (counts.to_str().unwrap(), exits.to_str().unwrap());
    let listed = |what: &str| place.ok(&["sandbox", "list", "--json"]).contains(what);
    assert_eq!(place.run(&["sandbox", "run", counts]).code, 1);
    // A run makes its application, even if it makes no object or cannot be started.
    assert_eq!(place.run(&["sandbox", "run", exits]).code, 7);
    assert_eq!(place.run(&["sandbox", "run", exits, "--app", "held", "--dir", "."]).code, 6);
    for id in ["exits", "held"] {
        assert!(listed(&format!("\"{id}\"")));
        place.ok(&["sandbox", "revoke", id, "--all"]);
        assert!(!listed(&format!("\"{id}\"")));
    }
    place.ok(&["sandbox", "grant", "reader", "counts:heap:read", "own:none", "--module", counts]);
    place.ok(&["sandbox", "revoke", "reader", "--all"]);
    assert!(!listed("reader"));
    // The application is new again: any module may run as it, and it has a new key.
    assert_eq!(place.run(&["sandbox", "run", exits, "--app", "reader"]).code, 7);

    // An application with an object can be removed after its object.
    place.ok(&["rm", "counts:heap"]);
    place.ok(&["sandbox", "revoke", "counts", "--all"]);
    assert!(!listed("counts"));
    assert_eq!(
        place.run(&["sandbox", "run", counts]).code,
        1,
        "the guest did not start with a new object"
    );
    assert_eq!(place.run(&["sandbox", "run", counts]).code, 2);
    assert_eq!(place.run(&["check"]).code, 0);
}

/// A guest that reads its standard input to the end, then maps `heap` and exits like [`COUNTS`].
const WAITS: &str = r#"(module
    (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
    (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
    (import "evermap" "map" (func $map (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 20481)
    (data (i32.const 0x50000000) "heap")
    (func (export "_start") (local $object i32)
        (i32.store (i32.const 0x50000100) (i32.const 0x50000200))
        (i32.store (i32.const 0x50000104) (i32.const 16))
        (drop (call $read (i32.const 0) (i32.const 0x50000100) (i32.const 1) (i32.const 0x50000110)))
        (local.set $object (call $map (i32.const 0x50000000) (i32.const 4) (i32.const 65536) (i32.const 3)))
        (if (i32.lt_s (local.get $object) (i32.const 0))
            (then (call $exit (i32.sub (i32.const 100) (local.get $object)))))
        (call $exit (i32.const 0))))"#;

#[test]
fn a_guest_of_a_removed_application_cannot_make_an_object() {
    let place = Place::new();
    let module = place.file("waits.wat", WAITS);
    let (module, exits) = (module.to_str().unwrap(), place.file("exits.wat", EXITS));
    let mut waiting = place
        .command(&["sandbox", "run", module, "--timeout", "60"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(50);
    while !place.run(&["sandbox", "list"]).out.contains("waits") {
        assert!(std::time::Instant::now() < end, "the guest does not start");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    place.ok(&["sandbox", "revoke", "waits", "--all"]);
    // A new application with this name and another key.
    assert_eq!(place.run(&["sandbox", "run", exits.to_str().unwrap(), "--app", "waits"]).code, 7);
    drop(waiting.stdin.take());
    assert_eq!(waiting.wait().unwrap().code(), Some(104), "denied");
    assert_eq!(place.ok(&["ls"]), "");
}

#[test]
fn a_guest_object_cannot_be_renamed_and_other_verbs_show_it() {
    let place = Place::new();
    let module = place.file("counts.wat", COUNTS);
    let module = module.to_str().unwrap();
    let run = || place.run(&["sandbox", "run", module]).code;
    assert_eq!(run(), 1);
    place.fails(2, "cannot rename", &["mv", "counts:heap", "kept"]);
    assert_eq!(run(), 2, "the guest did not find its object");
    let check = place.run(&["check"]);
    assert!(check.code == 0 && !check.out.contains("leftover"), "{check:?}");
    let info = place.info("counts:heap");
    assert_eq!(info["name"], "counts:heap");
    assert!(info["object"]["file_bytes"].as_u64().unwrap() > 0, "{info}");
    assert!(place.ok(&["info", "counts:heap"]).contains("counts:heap"));
    assert!(place.ok(&["map", "counts:heap", "--json"]).contains("counts:heap"));
    place.ok(&["rm", "counts:heap"]);
    assert_eq!(run(), 1);
}

#[test]
fn an_application_opens_its_heap_in_a_backup_and_after_a_restore() {
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
fn a_bound_module_excludes_others() {
    let place = Place::new();
    let (counts, exits) = (place.file("counts.wat", COUNTS), place.file("exits.wat", EXITS));
    let (counts, exits) = (counts.to_str().unwrap(), exits.to_str().unwrap());
    let bound = place.run(&["sandbox", "grant", "app", "--module", counts]);
    assert_eq!(bound.code, 0, "{bound:?}");
    assert_eq!(place.run(&["sandbox", "run", counts, "--app", "app"]).code, 1);
    let refused = place.run(&["sandbox", "run", exits, "--app", "app"]);
    assert_eq!(refused.code, 6, "{refused:?}");
    assert!(refused.err.contains("is not bound to application `app`"), "{}", refused.err);

    // Removing the last bound module does not admit others.
    assert_eq!(place.run(&["sandbox", "revoke", "app", "--module", counts]).code, 0);
    assert_eq!(place.run(&["sandbox", "run", counts, "--app", "app"]).code, 6);
    assert_eq!(place.run(&["sandbox", "grant", "app", "--any-module"]).code, 0);
    assert_eq!(place.run(&["sandbox", "run", exits, "--app", "app"]).code, 7);
}

/// A guest that sleeps for an hour of the monotonic clock.
const SLEEPS: &str = r#"(module
    (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (func (export "_start")
        (i32.store (i32.const 16) (i32.const 1))
        (i64.store (i32.const 24) (i64.const 3600000000000))
        (drop (call $poll (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128)))))"#;

#[test]
fn a_sleeping_guest_is_ended_at_its_timeout() {
    let place = Place::new();
    let module = place.file("sleeps.wat", SLEEPS);
    let timed = place.run(&["sandbox", "run", module.to_str().unwrap(), "--timeout", "0.1"]);
    assert_eq!(timed.code, 134, "{timed:?}");
    assert!(timed.err.contains("--timeout"), "{}", timed.err);
}

#[test]
fn errors_are_reported_in_one_line_with_a_remedy() {
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
    assert!(!list.out.contains("text"), "an application that never ran is listed: {}", list.out);
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

/// Runs a guest that grows a memory or a table. A limit on the command's own memory protects the
/// machine. Returns the result and the peak memory.
fn grown(place: &Place, name: &str, text: &str) -> (common::Ran, u64) {
    const GIB: u64 = 1 << 30;
    let module = place.file(name, text);
    let mut command = place.command(&["sandbox", "run"]);
    command.arg(module).args(["--memory", "1300", "--timeout", "60"]);
    // Limits private writable memory. The 4 GiB of reserved addresses do not count.
    let bound = rustix::process::Rlimit { current: Some(3 * GIB), maximum: Some(3 * GIB) };
    // SAFETY: the closure makes one system call.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(&mut command, move || {
            Ok(rustix::process::setrlimit(rustix::process::Resource::Data, bound)?)
        });
    }
    let (out, err) = (place.path("out"), place.path("err"));
    command.stdout(std::fs::File::create(&out).unwrap());
    command.stderr(std::fs::File::create(&err).unwrap());
    let mut child = command.spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut most_bytes = 0;
    let ended = loop {
        // The peak so far. The file is empty after the process has ended.
        let status = std::fs::read_to_string(&status).unwrap_or_default();
        let most =
            status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next());
        most_bytes = most.map_or(most_bytes, |kib| kib.parse::<u64>().unwrap() << 10);
        if let Some(ended) = child.try_wait().unwrap() {
            break ended;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    };
    let code = ended.code().unwrap_or(-1);
    let text = |path| std::fs::read_to_string(path).unwrap();
    (common::Ran { code, out: text(out), err: text(err) }, most_bytes)
}

#[test]
fn a_guest_cannot_grow_beyond_its_memory_limit_and_the_error_names_it() {
    const MOST_BYTES: u64 = 1_400_000_000;
    let place = Place::new();
    let module = |body: &str| {
        format!(
            r#"(module (memory (export "memory") 20496) (table $t 1 funcref) (memory $second 1)
                (func $deeper (call $deeper) (call $deeper))
                (func (export "_start") (local $at i32) {body} unreachable))"#
        )
    };
    let until_refused =
        |growth: &str| module(&format!("(loop $l (br_if $l (i32.ne (i32.const -1) {growth})))"));
    for (name, text, needle) in [
        ("table.wat", until_refused("(table.grow $t (ref.null func) (i32.const 100000))"), "--memory"),
        ("memory.wat", until_refused("(memory.grow (i32.const 1))"), "--memory"),
        ("second.wat", until_refused("(memory.grow $second (i32.const 1))"), "--memory"),
        (
            "touched.wat",
            module(
                "(loop $l (br_if $l (i32.ne (i32.const -1) (memory.grow (i32.const 1)))))
                 (memory.fill (i32.const 0) (i32.const 1) (i32.mul (memory.size) (i32.const 65536)))",
            ),
            "--memory",
        ),
        ("recursion.wat", module("(call $deeper)"), "call stack exhausted"),
    ] {
        let (ran, most_bytes) = grown(&place, name, &text);
        assert_eq!(ran.code, 134, "{name}: {ran:?}");
        assert!(ran.err.contains(needle), "{name}: {ran:?}");
        assert!(most_bytes <= MOST_BYTES, "{name} had {most_bytes} bytes");
    }
}

#[test]
fn a_memory_limit_below_the_initial_size_is_refused_with_the_needed_size() {
    let place = Place::new();
    let module = place.file("counts.wat", COUNTS);
    let module = module.to_str().unwrap();
    let refused = place.run(&["sandbox", "run", module, "--memory", "1280"]);
    assert_eq!(refused.code, 125, "{refused:?}");
    assert!(refused.err.contains("at least 1281 MiB"), "{}", refused.err);
    assert_eq!(place.run(&["sandbox", "run", module, "--memory", "1281"]).code, 1);
    let small = place.file("exits.wat", EXITS);
    let small = ["sandbox", "run", small.to_str().unwrap(), "--memory", "1"];
    assert_eq!(place.run(&small).code, 7, "a guest without objects needs no window");
}

#[test]
fn a_module_is_a_regular_file_of_limited_size_or_standard_input() {
    use std::io::Write;
    let place = Place::new();
    let fifo = std::ffi::CString::new(place.path("fifo").to_str().unwrap()).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let huge = std::fs::File::create(place.path("huge.wasm")).unwrap();
    huge.set_len((256 << 20) + 1).unwrap();
    for (name, why) in [
        ("fifo", "not a regular file"),
        ("/dev/zero", "not a regular file"),
        ("/dev/full", "not a regular file"),
        (".", "not a regular file"),
        ("huge.wasm", "256 MiB"),
    ] {
        // As a module to run, as a module to bind, and as a signature.
        for arguments in [
            &["sandbox", "run", name, "--app", "a"][..],
            &["sandbox", "grant", "a", "--module", name],
        ] {
            let refused = place.run(arguments);
            assert!(refused.code != 0 && refused.err.contains(why), "{arguments:?}: {refused:?}");
        }
    }
    let module = place.file("exits.wat", EXITS);
    let signed = ["sandbox", "run", module.to_str().unwrap(), "--signature", "fifo"];
    assert!(place.run(&signed).err.contains("not a regular file"));

    let mut piped = place
        .command(&["sandbox", "run", "-", "--app", "a"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    piped.stdin.take().unwrap().write_all(EXITS.as_bytes()).unwrap();
    assert_eq!(piped.wait().unwrap().code(), Some(7));
    let nameless = place.run(&["sandbox", "run", "-"]);
    assert!(nameless.code == 2 && nameless.err.contains("--app"), "{nameless:?}");
}

#[test]
fn a_bound_module_excludes_others_if_the_table_is_removed() {
    let place = Place::new();
    let (counts, exits) = (place.file("counts.wat", COUNTS), place.file("exits.wat", EXITS));
    let (counts, exits) = (counts.to_str().unwrap(), exits.to_str().unwrap());
    assert_eq!(place.run(&["sandbox", "grant", "app", "--module", counts]).code, 0);
    let table = place.store().join("sandbox.access");
    let whole = std::fs::read(&table).unwrap();
    std::fs::remove_file(&table).unwrap();
    for module in [exits, counts] {
        let refused = place.run(&["sandbox", "run", module, "--app", "app"]);
        assert!(refused.code == 5 && refused.err.contains("from a backup"), "{refused:?}");
    }
    for verb in [&["sandbox", "list"][..], &["sandbox", "grant", "app", "--any-module"]] {
        assert_eq!(place.run(verb).code, 5, "{verb:?}");
    }
    std::fs::write(&table, whole).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode;
    std::fs::set_permissions(&table, mode(0o622)).unwrap();
    let refused = place.run(&["sandbox", "run", counts, "--app", "app"]);
    assert!(refused.code == 6 && refused.err.contains("chmod go-w"), "{refused:?}");
    std::fs::set_permissions(&table, mode(0o600)).unwrap();
    assert_eq!(place.run(&["sandbox", "run", counts, "--app", "app"]).code, 1);
}
