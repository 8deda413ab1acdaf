//! Programs that check the library themselves and must succeed.

use std::fs;
use std::process::Command;

use crate::headers::declared;
use crate::staged::{Link, Place, compile, run, said, sources_of};

const SANITIZERS: [&str; 2] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

#[test]
fn programs_under_sanitizers_use_every_function() {
    let programs = ["every_function", "transfers", "loads"];
    let files = programs.into_iter().flat_map(sources_of);
    let source: String = files.map(|file| fs::read_to_string(file).unwrap()).collect();
    for name in declared() {
        let is_called = |before: char| !before.is_alphanumeric() && before != '_';
        let call = format!("{name}(");
        let found = source
            .match_indices(&call)
            .any(|(at, _)| source[..at].chars().next_back().is_some_and(is_called));
        assert!(found, "no program calls {name}");
    }
    let place = Place::new();
    let program = compile("every_function", place.path(), Link::Shared, &SANITIZERS);
    let said = run(place.command(&program).arg(place.path().join("other")));
    assert_eq!(said, "every function did what it promises\n");
}

#[test]
fn files_and_streams_are_transferred_as_was_promised() {
    let place = Place::new();
    let program = compile("transfers", place.path(), Link::Shared, &SANITIZERS);
    // The parent of the tests may ignore the signal, and children inherit that.
    let mut command = Command::new("env");
    command.args(["--default-signal=PIPE"]).arg(&program).arg(place.path());
    let said = run(command.env_remove("LD_LIBRARY_PATH").env("XDG_CACHE_HOME", place.path()));
    assert_eq!(said, "transfers did what they promise\n");
}

#[test]
fn files_are_loaded_as_was_promised() {
    // In the build directory: on a disk, which has direct I/O.
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program =
        compile("loads", place.path(), Link::Shared, &[&SANITIZERS[..], &["-O1"]].concat());
    let mut command = Command::new(&program);
    command.arg(place.path()).env_remove("LD_LIBRARY_PATH").env("XDG_CACHE_HOME", place.path());
    let output = command.output().unwrap();
    let said = said(&output);
    said.lines().filter(|line| line.starts_with("SKIPPED")).for_each(|line| eprintln!("{line}"));
    assert!(output.status.success(), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "loads did what they promise\n");
}

#[test]
fn handles_that_are_none_are_refused_by_every_function() {
    let place = Place::new();
    let program = compile("use_after_close", place.path(), Link::Shared, &SANITIZERS);
    let said = run(place.command(&program).arg(place.store()));
    assert_eq!(said, "only open handles are handles\n");
}

#[test]
fn a_stray_store_to_a_protected_object_is_a_fault_and_never_a_commit() {
    let place = Place::new();
    let program = compile("protected", place.path(), Link::Shared, &[]);
    let act = |arguments: &[&str]| {
        place.command(&program).arg(place.store()).args(arguments).output().unwrap()
    };
    assert!(act(&["make"]).status.success());
    // Pages, and keys if available; both end in the signal handler.
    for way in ["1", "2"] {
        let ended = act(&["stray", way]);
        assert_eq!(ended.status.code(), Some(42), "{way}: {}", said(&ended));
        assert_eq!(String::from_utf8_lossy(&act(&["look"]).stdout), "1\n", "{way}");
    }
    // Runs the same program on an unprotected object.
    assert!(act(&["stray", "0"]).status.success());
    assert_eq!(String::from_utf8_lossy(&act(&["look"]).stdout), "3\n");
}

#[test]
fn threads_get_what_they_were_promised() {
    let place = Place::new();
    let flags = ["-std=c11", "-fsanitize=undefined", "-fno-sanitize-recover=all"];
    let program = compile("threads", place.path(), Link::Shared, &flags);
    let said = run(place.command(&program).arg(place.store()));
    assert_eq!(said, "threads got what they were promised\n");
}

#[test]
fn threads_that_share_an_object_see_no_torn_state_and_by_default_none_that_is_not_committed() {
    let place = Place::new();
    let flags = ["-std=c11", "-fsanitize=undefined", "-fno-sanitize-recover=all"];
    let program = compile("shared", place.path(), Link::Shared, &flags);
    let said = run(place.command(&program).arg(place.store()));
    assert_eq!(said, "threads shared an object\n");
}

#[test]
fn the_cost_of_calls_can_be_measured() {
    let place = Place::new();
    let program = compile("cost", place.path(), Link::Static, &["-O2"]);
    assert_eq!(run(place.command(&program).arg(place.store())), "measured\n");
}

#[test]
fn cost_and_errors_of_the_foreign_pointer_search_can_be_measured() {
    let place = Place::new();
    let flags = ["-O2", "-fPIE", "-pie"];
    let cost = compile("commit_cost", place.path(), Link::Shared, &flags);
    let said = run(place.command(&cost).arg(place.store()).args(["10", "4096", "report", "2"]));
    assert!(said.ends_with(" ns\n"), "{said}");
    let reports = compile("false_reports", place.path(), Link::Shared, &flags);
    let said = run(place.command(&reports).arg(place.path().join("other")).args(["65536", "16"]));
    for kind in ["random, 64 bits", "random, 32 bits", "doubles"] {
        assert!(said.contains(&format!("{kind}: 0 of 65536\n")), "{said}");
    }
}
