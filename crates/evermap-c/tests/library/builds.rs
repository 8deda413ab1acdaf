//! Tests of objects with code addresses, opened by the same build and by another build of a
//! program.

use std::path::{Path, PathBuf};
use std::process::Output;

use crate::staged::{Link, Place, compile, said};

/// The program, compiled as one of two builds.
fn build(place: &Place, number: u32, flags: &[&str]) -> PathBuf {
    let into = place.path().join(format!("{number}{}", flags.concat()));
    std::fs::create_dir_all(&into).unwrap();
    let define = format!("-DBUILD={number}");
    compile("builds", &into, Link::Static, &[flags, &[&define]].concat())
}

fn run(place: &Place, program: &Path, verb: &str) -> Output {
    place.command(program).arg(place.store()).arg(verb).output().unwrap()
}

/// Runs a verb that must succeed, and returns its output.
fn ok(place: &Place, program: &Path, verb: &str) -> String {
    let output = run(place, program, verb);
    assert!(output.status.success(), "{verb}: {}", said(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a verb that must fail with `EM_OTHER_BUILD`, and returns the message.
fn refused(place: &Place, program: &Path, verb: &str) -> String {
    let output = run(place, program, verb);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(2), "{verb}: {text}");
    assert!(text.contains("EM_OTHER_BUILD"), "{text}");
    text
}

#[test]
fn code_at_a_fixed_address_is_called_by_the_same_build_and_refused_by_another() {
    let place = Place::new();
    // The linker writes no build-id in the second round, so the hash of the code identifies the
    // build.
    for (name, id) in [("with", "-Wl,--build-id"), ("without", "-Wl,--build-id=none")] {
        let flags = ["-no-pie", id];
        let (one, two) = (build(&place, 1, &flags), build(&place, 2, &flags));
        for verb in ["rollback", "write", "register"] {
            let written = run(&place, &one, verb);
            assert!(written.status.success(), "{name}: {}", said(&written));
            // Unless it is registered, it is reported as well.
            let reported =
                String::from_utf8_lossy(&written.stderr).contains("is invalid in the next process");
            assert_eq!(reported, verb != "register", "{name}, {verb}: {}", said(&written));
            assert_eq!(ok(&place, &one, "call"), "43 a literal\n", "{name}, {verb}");
            let text = refused(&place, &two, "call");
            for part in ["object `code`", "builds (build ", "fixed at 0x4", "-no-pie"] {
                assert!(text.contains(part), "{name}: {text} lacks {part}");
            }
            assert_eq!(text.matches("builds (build ").count(), 2, "both builds: {text}");
            ok(&place, &two, "look");
            ok(&place, &one, "forget");
            ok(&place, &two, "look");
            ok(&place, &one, "write");
            refused(&place, &two, "call");
            ok(&place, &one, "forget");
        }
    }
}

#[test]
fn code_that_lies_elsewhere_in_each_process_is_refused_by_the_next() {
    let place = Place::new();
    let program = build(&place, 1, &["-fPIE", "-pie"]);
    let output = run(&place, &program, "register");
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(said(&output).contains("EM_UNSUPPORTED"), "{}", said(&output));
    ok(&place, &program, "write");
    let output = run(&place, &program, "call");
    if output.status.success() {
        eprintln!("SKIPPED: code is not put at random addresses here");
        return;
    }
    let text = refused(&place, &program, "call");
    assert!(text.contains("builds (build ") && text.contains("-no-pie"), "{text}");
    ok(&place, &program, "look");
}
