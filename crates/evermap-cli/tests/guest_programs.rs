//! Guests built from their sources in Rust and C, as a user builds them: they reopen their heaps.
#![cfg(feature = "sandbox")]
#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/walkthrough.rs"]
mod walkthrough;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::Place;

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
